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

// Tokens of a group of pages are numbered from the first page's first on. A query sees those from `first` to below
// `end`; there may be none.
struct SeenTokens {
  int64_t first, end;
};

// One KV head in a group of pages, and queries of any tokens and heads that share it.
struct PagedTokens {
  const float* queries;  // [count, head_dim], scaled
  const SeenTokens* seen;
  int64_t count;
  const void* const* keys;    // of each page: [head_dim, page_tokens]
  const void* const* values;  // of each page: [page_tokens, head_dim]
  FloatType type;
  int64_t pages, page_tokens, head_dim;  // page_tokens: a multiple of kPageStep
  float softcap;                         // scores s become softcap * tanh(s / softcap); 0: they stay
};
inline constexpr int64_t kPageStep = 16;

// As attend_f32_f32_fp, of the tokens that a query sees. Its output depends on nothing but these, the query, and their
// numbers: other queries and tokens do not change a bit of it. Pages without a token that is seen are not read.
// `weights` is scratch for count * pages * page_tokens floats.
TILEPRESS_OPERATION(attend_f32_f32_fp_pages, void(const PagedTokens&, float* weights, float* out));

}  // namespace tilepress
