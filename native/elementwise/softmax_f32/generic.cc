// Compiled for: portable avx2 avx512
#include "simd/exponential.h"
#include "tilepress/elementwise.h"

namespace tilepress {
namespace {

float softmax_f32(float* values, int64_t count, float largest) {
  Floats sums = {};
  int64_t at = 0;
  for (; at + kLanes <= count; at += kLanes) {
    const Floats powers = exponential(load<Floats>(values + at) - largest);
    store(powers, values + at);
    sums += powers;
  }
  float sum = 0;
  for (int i = 0; i < kLanes; ++i) sum += sums[i];
  for (; at < count; ++at) sum += values[at] = exponential(Floats{} + (values[at] - largest))[0];
  return sum;
}

TILEPRESS_KERNEL(softmax_f32);

}  // namespace
}  // namespace tilepress
