// Compiled for: neon_dotprod amx
// One row of activations to fp16, with one unit per group.
#include "quantize/scales.h"
#include "simd/simd.h"
#include "tilepress/quantize.h"

namespace tilepress {
namespace {

// The power of two that makes the largest of these magnitudes, as bits, 2^exponent or more and less than twice that;
// what is below 2^-100 keeps fewer bits.
[[gnu::always_inline]] inline float unit_of(Uint32s magnitudes, int exponent) {
  constexpr uint32_t kLeast = std::bit_cast<uint32_t>(0x1p-100f);
  const uint32_t largest = most<uint32_t>(reduce_max(magnitudes), kLeast) & 0x7f800000;
  return std::bit_cast<float>(largest - (static_cast<uint32_t>(exponent) << 23));
}

template <FloatType type>
inline bool round_groups(const HalfInput& in, const HalfOutput& out) {
  constexpr uint32_t kTooLarge = std::bit_cast<uint32_t>(kMostNearest);
  constexpr int kVectors = kHalfGroup / kLanes;
  Uint32s largest = {};
  for (int64_t first = 0; first < out.padded; first += kHalfGroup) {
    Floats floats[kVectors];
    Uint32s mine = {};
    for (int i = 0; i < kVectors; ++i) {
      const int64_t at = first + i * kLanes;
      floats[i] = load_floats<type>(in.x, at, in.count - at);
      mine = max(mine, magnitude_bits(floats[i]));
    }
    largest = max(largest, mine);
    const float unit = unit_of(mine, in.exponent);
    out.units[first / kHalfGroup] = unit * in.unit;
    for (int i = 0; i < kVectors; ++i) store(to_fp16(floats[i] * (1 / unit)), out.values + first + i * kLanes);
  }
  return reduce_max(largest) < kTooLarge;
}

bool quantize_f16_fp(const HalfInput& in, const HalfOutput& out) {
  return with_float_type(in.type, [&]<FloatType type>() { return round_groups<type>(in, out); });
}

TILEPRESS_KERNEL(quantize_f16_fp);

}  // namespace
}  // namespace tilepress
