#include "kernels/all.h"
#include "kernels/lanes.h"

namespace tilepress {
namespace {

constexpr int kVectors = kHalfGroup / kLanes;

// The power of two that makes the largest of these magnitudes, as bits, 2^exponent or more and less than twice that;
// what is below 2^-100 keeps fewer bits.
[[gnu::always_inline]] inline float unit_of(Words magnitudes, int exponent) {
  constexpr uint32_t kLeast = std::bit_cast<uint32_t>(0x1p-100f);
  const uint32_t largest = most<uint32_t>(most_of(magnitudes)[0], kLeast) & 0x7f800000;
  return std::bit_cast<float>(largest - (static_cast<uint32_t>(exponent) << 23));
}

template <Real type>
bool round_row(const HalfInput& in, const HalfOutput& out) {
  constexpr uint32_t kTooLarge = std::bit_cast<uint32_t>(kMostNearest);
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
      const int64_t at = first + i * kLanes;
      const __m256i halves = _mm512_cvtps_ph(floats[i] * (1 / unit), _MM_FROUND_TO_NEAREST_INT);
      std::memcpy(out.values + at, &halves, sizeof(halves));
    }
  }
  return most_of(largest)[0] < kTooLarge;
}

}  // namespace

bool amx::round_half_row(const HalfInput& in, const HalfOutput& out) {
  return with_real_type(in.type, [&]<Real type>() { return round_row<type>(in, out); });
}

}  // namespace tilepress
