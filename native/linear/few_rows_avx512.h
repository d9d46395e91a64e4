// For a few rows of activations: weights are decoded to bf16 in registers and multiplied at once. Scales are applied to
// the sums of a group. Products provides
//   Number              type of the activations
//   add(sums, pair, x)  sums[0], sums[1] += products of four inputs
#pragma once

#include "linear/bf16_rows_avx512.h"

namespace tilepress {
namespace {

// Accumulators of several rows; with few rows, several chains for each, to hide the latency of multiply-add.
template <int rows>
struct FewSums {
  static constexpr int kChains = rows == 1 ? 4 : 2;
  __m512 sums[rows][kChains];

  void clear() {
    for (auto& row : sums) {
      for (auto& sum : row) sum = _mm512_setzero_ps();
    }
  }

  template <class Products>
  [[gnu::always_inline]] void add(const Products& products, const RowPair* pairs, const typename Products::Number* x,
                                  int64_t stride) {
    for (int i = 0; i < rows; ++i, x += stride) {
      for (int line = 0; line < kStepLines; ++line) {
        products.add(sums[i] + 2 * line % kChains, pairs[line], x + kLineInputs * line);
      }
    }
  }

  __m512 total(int row) const {
    __m512 sum = _mm512_add_ps(sums[row][0], sums[row][1]);
    if constexpr (kChains == 4) sum = _mm512_add_ps(sum, _mm512_add_ps(sums[row][2], sums[row][3]));
    return sum;
  }
};

template <class Source, class Values, ScaleType type, int rows, class Products>
int64_t multiply_few_rows(const Products& products, const KPanel& weights,
                          const FloatActivations<typename Products::Number>& x, uint8_t* scratch, int64_t row,
                          float* out) {
  Source source(weights, scratch);
  Values values(weights);
  __m512 accumulators[rows];
  for (auto& total : accumulators) total = _mm512_setzero_ps();
  const typename Products::Number* from = x.x + row * x.stride;
  for_groups(weights, weights.inputs, [&](int64_t group, int64_t begin, int64_t end) {
    FewSums<rows> sums;
    sums.clear();
    values.begin_group(group);
    for (int64_t input = begin; input < end; input += kStepInputs) {
      RowPair pairs[kStepLines];
      source.next(values, pairs);
      sums.add(products, pairs, from + input, x.stride);
    }
    const __m512 scales = scales_of<type>(weights.scales, group);
    for (int i = 0; i < rows; ++i) accumulators[i] = _mm512_fmadd_ps(sums.total(i), scales, accumulators[i]);
  });
  for (int i = 0; i < rows; ++i) {
    float* at = out + i * kBlockNeurons;
    _mm512_storeu_ps(at, _mm512_add_ps(_mm512_loadu_ps(at), accumulators[i]));
  }
  return source.consumed();
}

// `rows` rows at a time, as registers allow, then half as many, and so on. Returns Source::consumed().
template <int rows, class Source, class Values, class Products>
int64_t multiply_row_batches(const Products& products, const KPanel& weights,
                             const FloatActivations<typename Products::Number>& x, uint8_t* scratch, float* out,
                             int64_t row = 0, int64_t consumed = 0) {
  for (; row + rows <= x.batch; row += rows) {
    with_scale_type(*weights.format, [&]<ScaleType type>() {
      consumed =
          multiply_few_rows<Source, Values, type, rows>(products, weights, x, scratch, row, out + row * kBlockNeurons);
    });
  }
  if constexpr (rows == 1) return consumed;
  return multiply_row_batches<(rows + 1) / 2, Source, Values>(products, weights, x, scratch, out, row, consumed);
}

}  // namespace
}  // namespace tilepress
