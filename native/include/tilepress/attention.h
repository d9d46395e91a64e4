// Attention over keys and values that are not packed.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tilepress/format.h"
#include "tilepress/kernel.h"

namespace tilepress {

// Some tokens of one KV head, keys and values [count, head_dim], and one token's queries of the heads that share it.
struct HeadTokens {
  const float* queries;  // [heads, head_dim], scaled
  int64_t heads;
  const void *keys, *values;
  FloatType type;
  int64_t count, head_dim;
};

// Attention over these tokens alone. out [heads, head_dim + 2]: Σ e^(score - largest) * value, then the largest score
// and Σ e^(score - largest). `weights` is scratch for heads * count floats.
TILEPRESS_OPERATION(attend_f32_f32_fp, void(const HeadTokens&, float* weights, float* out));

}  // namespace tilepress
