// What kernels of sampling share. A block's sums have 16 lanes on every instruction set, and the same bits.
#pragma once

#include <algorithm>
#include <limits>

#include "simd/simd.h"
#include "tilepress/elementwise.h"

namespace tilepress {
namespace {

inline constexpr int kBlockSteps = static_cast<int>(kLogitBlock) / kBlockNeurons;

// Calls work(block, index) for each block; the last is filled up with minus infinity.
template <class Work>
inline void for_logit_blocks(const float* logits, int64_t count, const Work& work) {
  int64_t first = 0;
  for (; first + kLogitBlock <= count; first += kLogitBlock) work(logits + first, first / kLogitBlock);
  if (first == count) return;
  float rest[kLogitBlock];
  std::fill(std::copy(logits + first, logits + count, rest), rest + kLogitBlock,
            -std::numeric_limits<float>::infinity());
  work(rest, first / kLogitBlock);
}

TILEPRESS_INLINE Floats score_of(Floats logits, const Weighing& how) { return (logits - how.largest) * how.scale; }

TILEPRESS_INLINE Int32s counts(Floats scores, const Weighing& how) {
  return (scores >= how.least) & (scores <= how.most);
}

// Of 16 lanes, which are added by halves.
TILEPRESS_INLINE float sum_of_lanes(Floats* lanes) {
  for (int half = kBlockVectors / 2; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  }
  return reduce_lanes(lanes[0], add<Floats>)[0];
}

}  // namespace
}  // namespace tilepress
