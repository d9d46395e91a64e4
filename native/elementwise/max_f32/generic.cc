// Compiled for: portable avx2 avx512
#include <bit>
#include <limits>

#include "quantize/scales.h"
#include "tilepress/elementwise.h"

namespace tilepress {
namespace {

// Floats are ordered as integers are once the bits of negative ones are flipped, and compilers vectorise integers.
float max_f32(const float* scores, int64_t count) {
  const auto flipped = [](int32_t bits) { return bits ^ (bits >> 31 & 0x7fffffff); };
  int32_t largest = flipped(std::bit_cast<int32_t>(-std::numeric_limits<float>::infinity()));
  for (int64_t i = 0; i < count; ++i) largest = most(largest, flipped(std::bit_cast<int32_t>(scores[i])));
  return std::bit_cast<float>(flipped(largest));
}

TILEPRESS_KERNEL(max_f32);

}  // namespace
}  // namespace tilepress
