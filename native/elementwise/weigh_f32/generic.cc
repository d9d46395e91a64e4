// Compiled for: portable avx2 avx512
#include "elementwise/logit_blocks.h"
#include "simd/math.h"

namespace tilepress {
namespace {

float weight_of(const float* block, const Weighing& how) {
  Floats sums[kBlockVectors] = {};
  for (int step = 0; step < kBlockSteps; ++step) {
    for (int i = 0; i < kBlockVectors; ++i) {
      const Floats scores = score_of(load<Floats>(block + (step * kBlockVectors + i) * kLanes), how);
      const Int32s counted = counts(scores, how);
      if (any(counted)) sums[i] += counted ? exp(scores) : Floats{};
    }
  }
  return sum_of_lanes(sums);
}

void weigh_f32(const float* logits, int64_t count, const Weighing& how, const float* peaks, float* sums) {
  for_logit_blocks(logits, count, [&](const float* block, int64_t index) {
    sums[index] = (peaks[index] - how.largest) * how.scale >= how.least ? weight_of(block, how) : 0;
  });
}

TILEPRESS_KERNEL(weigh_f32);

}  // namespace
}  // namespace tilepress
