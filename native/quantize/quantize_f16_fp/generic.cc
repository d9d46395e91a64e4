// Compiled for: neon_dotprod amx
// A row of activations as fp16 in groups with units of their own.
#include "simd/lanes.h"

namespace tilepress {
namespace {

[[gnu::always_inline]] inline Halves to_nearest_fp16(Floats floats) {
#if defined(__aarch64__)
  return std::bit_cast<Halves>(vcvt_f16_f32(floats));
#else
  return std::bit_cast<Halves>(_mm512_cvtps_ph(floats, _MM_FROUND_TO_NEAREST_INT));
#endif
}

// The power of two that makes the largest of these magnitudes, as bits, 2^exponent or more and less than twice that;
// what is below 2^-100 keeps fewer bits.
[[gnu::always_inline]] inline float unit_of(Words magnitudes, int exponent) {
  constexpr uint32_t kLeast = std::bit_cast<uint32_t>(0x1p-100f);
  const uint32_t largest = most<uint32_t>(most_of(magnitudes)[0], kLeast) & 0x7f800000;
  return std::bit_cast<float>(largest - (static_cast<uint32_t>(exponent) << 23));
}

template <FloatType type>
inline bool round_groups(const HalfInput& in, const HalfOutput& out) {
  constexpr uint32_t kTooLarge = std::bit_cast<uint32_t>(kMostNearest);
  constexpr int kVectors = kHalfGroup / kLanes;
  Words largest = {};
  for (int64_t first = 0; first < out.padded; first += kHalfGroup) {
    Floats floats[kVectors];
    Words mine = {};
    for (int i = 0; i < kVectors; ++i) {
      const int64_t at = first + i * kLanes;
      floats[i] = activations_at<type>(in.x, at, in.count - at);
      mine = larger(mine, std::bit_cast<Words>(floats[i]) & 0x7fffffff);
    }
    largest = larger(largest, mine);
    const float unit = unit_of(mine, in.exponent);
    out.units[first / kHalfGroup] = unit * in.unit;
    for (int i = 0; i < kVectors; ++i) {
      const Halves halves = to_nearest_fp16(floats[i] * (1 / unit));
      std::memcpy(out.values + first + i * kLanes, &halves, sizeof(halves));
    }
  }
  return most_of(largest)[0] < kTooLarge;
}

bool quantize_f16_fp(const HalfInput& in, const HalfOutput& out) {
  return with_float_type(in.type, [&]<FloatType type>() { return round_groups<type>(in, out); });
}

TILEPRESS_KERNEL(quantize_f16_fp);

}  // namespace
}  // namespace tilepress
