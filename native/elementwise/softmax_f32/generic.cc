// Compiled for: portable avx2 avx512
#include "simd/math.h"
#include "tilepress/elementwise.h"

namespace tilepress {
namespace {

float softmax_f32(float* values, int64_t count, float largest) {
  const auto sum_in_order = [](Floats lanes) {
    float sum = 0;
    for (int i = 0; i < kLanes; ++i) sum += lanes[i];
    return sum;
  };
  return exp_and_sum(values, count, largest, sum_in_order);
}

TILEPRESS_KERNEL(softmax_f32);

}  // namespace
}  // namespace tilepress
