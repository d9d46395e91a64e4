// Compiled for: portable avx2 avx512
#include "elementwise/logit_blocks.h"

namespace tilepress {
namespace {

double sum_f32(const float* scores, const float* weights, int64_t blocks, float least) {
  double sum = 0;
  for (int64_t first = 0; first < blocks * kLogitBlock; first += kLogitBlock) {
    Floats sums[kBlockVectors] = {};
    for (int step = 0; step < kBlockSteps; ++step) {
      for (int i = 0; i < kBlockVectors; ++i) {
        const int64_t at = first + (step * kBlockVectors + i) * kLanes;
        sums[i] += load<Floats>(scores + at) >= least ? load<Floats>(weights + at) : Floats{};
      }
    }
    sum += sum_of_lanes(sums);
  }
  return sum;
}

TILEPRESS_KERNEL(sum_f32);

}  // namespace
}  // namespace tilepress
