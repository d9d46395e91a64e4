// Compiled for: portable avx2 avx512
#include "simd/math.h"
#include "tilepress/elementwise.h"

namespace tilepress {
namespace {

void exp_f32(const float* values, int64_t blocks, float* powers) {
  for (int64_t at = 0; at < blocks * kLogitBlock; at += kLanes) store(exp(load<Floats>(values + at)), powers + at);
}

TILEPRESS_KERNEL(exp_f32);

}  // namespace
}  // namespace tilepress
