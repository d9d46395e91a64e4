// Dot products by sdot: the kernel of neon_dotprod, and of neon_i8mm where smmla gains nothing.
//
// Two variants with the same results. A few rows: dense 4- and 8-bit codes are multiplied from where they are, sparse
// codes are expanded in registers. Otherwise: the K-panel is decoded to operands, which then are dense 8-bit codes.
#pragma once

#include "linear/linear_f32_i8_int/neon_dense.h"
#include "linear/linear_f32_i8_int/neon_sparse.h"

namespace tilepress {
namespace {

// The same as kFewLines, in rows, for looked-up codes.
constexpr int64_t kFewLookedUp = 2;

// Decodes the K-panel to operands first; supports all weights.
int64_t decoded(const KPanel& weights, const IntegerActivations& x, float* out, uint8_t* scratch) {
  uint8_t* operands = operands_in(weights, scratch);
  const int64_t consumed = decode_operands<Neon>(weights, operands, scratch);
  if (consumed < 0) return consumed;
  weights.zeros ? dense<Dense8<true>>(weights, x, operands, out) : dense<Dense8<false>>(weights, x, operands, out);
  return consumed;
}

inline int64_t linear_by_dots(const KPanel& weights, const IntegerActivations& x, float* out, uint8_t* scratch) {
  const int bits = weights.format->bits;
  const bool signed_codes = !weights.zeros;
  const bool fits_int8 = signed_codes || bits < 8;
  const int64_t lines = x.batch * (x.nine_bit_lines ? 2 : x.limb_count);
  const bool few = weights.format->integers ? x.batch <= kFewLookedUp : lines <= kFewLines;
  if (weights.mask && fits_int8 && few) return sparse(weights, x, out, scratch);
  if (!weights.mask && weights.format->integers) return dense_table(weights, x, out);
  if (is_int4_g32(weights, x) && lines < kFewLines) {
    for (int64_t row = 0; row < x.batch; ++row) multiply_int4_g32(weights, x, row, out + row * kBlockNeurons);
    return 0;
  }
  if (!weights.mask && bits == 4 && signed_codes) return dense4<true>(weights, x, out, scratch);
  if (!weights.mask && bits == 4) return dense4<false>(weights, x, out, scratch);
  if (!weights.mask && bits == 8 && signed_codes) return dense<Dense8<false, false>>(weights, x, weights.packed, out);
  return decoded(weights, x, out, scratch);
}

}  // namespace
}  // namespace tilepress
