// Operations of attention/ on keys and values that are not packed.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tilepress/format.h"
#include "tilepress/kernel.h"

namespace tilepress {

// Some tokens of a head of keys and values [count, head_dim], and one token's queries of the heads that share it.
struct HeadTokens {
  const float* queries;  // [heads, head_dim], scaled
  int64_t heads;
  const void *keys, *values;
  FloatType type;
  int64_t count, head_dim;
};
// Attention to these tokens alone: of each head the sum of values times their weights, e to the power of how much less
// a score is than the largest one; and behind it, that score and the sum of weights. `weights` holds heads * count; out
// [heads, head_dim + 2].
TILEPRESS_OPERATION(attend_f32_f32_fp, void(const HeadTokens&, float* weights, float* out));
}  // namespace tilepress
