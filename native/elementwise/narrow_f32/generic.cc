// Compiled for: portable avx2 avx512
#include "elementwise/logit_blocks.h"

namespace tilepress {
namespace {

int64_t narrow_f32(float* scores, float* weights, int64_t blocks, float least, float most) {
  int64_t kept = 0;
  for (int64_t at = 0; at < blocks * kLogitBlock; at += kLanes) {
    const Floats score = load<Floats>(scores + at), weight = load<Floats>(weights + at);
    const Int32s inside = (score >= least) & (score <= most);
    if (!any(inside)) continue;
    compress(score, inside, scores + kept);
    kept += compress(weight, inside, weights + kept);
  }
  return kept;
}

TILEPRESS_KERNEL(narrow_f32);

}  // namespace
}  // namespace tilepress
