// Compiled for: portable avx2 avx512
#include "elementwise/logit_blocks.h"

namespace tilepress {
namespace {

int64_t select_f32(const float* logits, int64_t count, const Weighing& how, const float* peaks, float* scores) {
  int64_t selected = 0;
  for_logit_blocks(logits, count, [&](const float* block, int64_t index) {
    if (!((peaks[index] - how.largest) * how.scale >= how.least)) return;
    for (int at = 0; at < kLogitBlock; at += kLanes) {
      const Floats lanes = score_of(load<Floats>(block + at), how);
      const Int32s counted = counts(lanes, how);
      if (any(counted)) selected += compress(lanes, counted, scores + selected);
    }
  });
  return selected;
}

TILEPRESS_KERNEL(select_f32);

}  // namespace
}  // namespace tilepress
