// Compiled for: portable avx2 avx512
#include "elementwise/logit_blocks.h"

namespace tilepress {
namespace {

float peak_of(const float* block) {
  Floats largest = load<Floats>(block);
  Int32s nan = largest != largest;
  for (int at = kLanes; at < kLogitBlock; at += kLanes) {
    const Floats x = load<Floats>(block + at);
    largest = max(largest, x);
    nan |= x != x;
  }
  return any(nan) ? std::numeric_limits<float>::quiet_NaN() : reduce_max(largest);
}

void peak_f32(const float* logits, int64_t count, float* peaks) {
  for_logit_blocks(logits, count, [&](const float* block, int64_t index) { peaks[index] = peak_of(block); });
}

TILEPRESS_KERNEL(peak_f32);

}  // namespace
}  // namespace tilepress
