// Compiled for: portable avx2
// Weights of a softmax as block floating point. Plain loops of known length for
// compilers to vectorise.
#include "quantize/block_floats.h"

namespace tilepress {
namespace {

// x is not positive; it is compared as integers, which compilers vectorise.
inline float exponential(float x) {
  constexpr float kHalves = 12582912.0f;  // adding 1.5 * 2^23 leaves no place for a fraction
  constexpr uint32_t kMost = std::bit_cast<uint32_t>(40.0f);
  x = -std::bit_cast<float>(least(std::bit_cast<uint32_t>(x) & 0x7fffffff, kMost));
  const float n = (x * 1.44269504088896341f + kHalves) - kHalves;
  const float r = (x - n * 0.693359375f) - n * -2.12194440e-4f;
  float sum = 1.9875691500e-4f;
  sum = sum * r + 1.3981999507e-3f;
  sum = sum * r + 8.3334519073e-3f;
  sum = sum * r + 4.1665795894e-2f;
  sum = sum * r + 1.6666665459e-1f;
  sum = sum * r + 5.0000001201e-1f;
  sum = (sum * (r * r) + r) + 1.0f;
  return sum * std::bit_cast<float>((static_cast<int32_t>(n) + 127) << 23);
}

void softmax_u8_f32(const float* scores, int64_t count, float largest, uint8_t* values, int32_t* sums, float* units) {
  for (int64_t first = 0; first < count; first += kKvGroup) {
    uint32_t halves[kKvGroup], most_bits = 0;
    int32_t sum = 0;
    for (int i = 0; i < kKvGroup; ++i) halves[i] = to_fp16(exponential(scores[first + i] - largest));
    for (int i = 0; i < kKvGroup; ++i) most_bits = most(most_bits, halves[i]);
    const float unit = unit_of(most_bits, 8), per_unit = 1.0f / unit;
    int32_t whole[kKvGroup];
    for (int i = 0; i < kKvGroup; ++i) whole[i] = static_cast<int32_t>(std::bit_cast<float>(halves[i]) * per_unit);
    for (int i = 0; i < kKvGroup; ++i) sum += whole[i];
    for (int i = 0; i < kKvGroup; ++i) values[first + i] = static_cast<uint8_t>(whole[i]);
    sums[first / kKvGroup] = sum;
    units[first / kKvGroup] = unit;
  }
}

TILEPRESS_KERNEL(softmax_u8_f32);

}  // namespace
}  // namespace tilepress
