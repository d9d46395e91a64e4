// Weights decoded to rows of bf16 pairs in registers and multiplied at once, for a few rows of activations. A group's
// products are summed before its scale is applied.
#include "kernels/bf16_rows_avx512.h"

namespace tilepress {
namespace {

__m512 add_pairs(__m512 sum, __m512i row, const uint16_t* x) {
  int32_t pair;
  std::memcpy(&pair, x, 4);
  return _mm512_dpbf16_ps(sum, std::bit_cast<__m512bh>(row), std::bit_cast<__m512bh>(_mm512_set1_epi32(pair)));
}

// Sums of several rows of activations; more than one for each, so that products need not wait for one another.
template <int rows>
struct Sums {
  static constexpr int kChains = rows == 1 ? 4 : 2;
  __m512 of[rows][kChains];

  void clear() {
    for (auto& row : of) {
      for (auto& sum : row) sum = _mm512_setzero_ps();
    }
  }

  [[gnu::always_inline]] void add(const RowPair* pairs, const uint16_t* x, int64_t stride) {
    for (int i = 0; i < rows; ++i, x += stride) {
      for (int line = 0; line < kStepLines; ++line) {
        __m512 &first = of[i][2 * line % kChains], &second = of[i][(2 * line + 1) % kChains];
        first = add_pairs(first, pairs[line].first, x + kLineInputs * line);
        second = add_pairs(second, pairs[line].second, x + kLineInputs * line + 2);
      }
    }
  }

  __m512 total(int row) const {
    __m512 sum = _mm512_add_ps(of[row][0], of[row][1]);
    if constexpr (kChains == 4) sum = _mm512_add_ps(sum, _mm512_add_ps(of[row][2], of[row][3]));
    return sum;
  }
};

template <class Source, class Values, ScaleType type, int rows>
int64_t multiply_rows(const SpanWeights& weights, const FloatActivations<uint16_t>& x, uint8_t* scratch, int64_t row,
                      float* out) {
  Source source(weights, scratch);
  Values values(weights);
  __m512 totals[rows];
  for (auto& total : totals) total = _mm512_setzero_ps();
  const uint16_t* from = x.x + row * x.stride;
  for_groups(weights, weights.inputs, [&](int64_t group, int64_t begin, int64_t end) {
    Sums<rows> sums;
    sums.clear();
    values.begin_group(group);
    for (int64_t input = begin; input < end; input += kStepInputs) {
      RowPair pairs[kStepLines];
      source.next(values, pairs);
      sums.add(pairs, from + input, x.stride);
    }
    const __m512 scales = scales_of<type>(weights.scales, group);
    for (int i = 0; i < rows; ++i) totals[i] = _mm512_fmadd_ps(sums.total(i), scales, totals[i]);
  });
  for (int i = 0; i < rows; ++i) {
    float* at = out + i * kBlockNeurons;
    _mm512_storeu_ps(at, _mm512_add_ps(_mm512_loadu_ps(at), totals[i]));
  }
  return source.taken();
}

template <class Source, class Values>
int64_t multiply_all(const SpanWeights& weights, const FloatActivations<uint16_t>& x, uint8_t* scratch, float* out) {
  int64_t row = 0, taken = 0;
  const auto take = [&]<int rows>() {
    for (; row + rows <= x.batch; row += rows) {
      with_scale_type(*weights.format, [&]<ScaleType type>() {
        taken = multiply_rows<Source, Values, type, rows>(weights, x, scratch, row, out + row * kBlockNeurons);
      });
    }
  };
  take.template operator()<4>();
  take.template operator()<2>();
  take.template operator()<1>();
  return taken;
}

// What no Source takes, and what must meet its scales before it is summed, is decoded to tiles first; then it is bf16.
int64_t multiply_decoded(const SpanWeights& weights, const FloatActivations<uint16_t>& x, float* out,
                         uint8_t* scratch) {
  auto* tiles = reinterpret_cast<uint16_t*>(scratch + (weights.tiles + 1) * kMaxTileBytes);
  const int64_t taken = decode_any<Avx512>(weights, scales_first(*weights.format), tiles, scratch);
  if (taken < 0) return taken;
  Format format = *weights.format;
  if (scales_first(format)) format.scale = ScaleType::none;
  format.rounding = Rounding::bf16;
  format.bits = 16;
  SpanWeights decoded = weights;
  decoded.format = &format;
  decoded.operand_bits = 16;
  decoded.mask = nullptr;
  decoded.packed = reinterpret_cast<uint8_t*>(tiles);
  multiply_all<DenseWords, Bf16Words>(decoded, x, scratch, out);
  return taken;
}

}  // namespace

int64_t avx512::linear_bf16_span(const SpanWeights& weights, const FloatActivations<uint16_t>& x, float* out,
                                 uint8_t* scratch) {
  if (scales_first(*weights.format)) return multiply_decoded(weights, x, out, scratch);
  unpack_dense_bytes(weights, scratch);
  int64_t taken = 0;
  const bool done = with_rows<true>(
      weights, [&]<class Source, class Values>() { taken = multiply_all<Source, Values>(weights, x, scratch, out); });
  return done ? taken : multiply_decoded(weights, x, out, scratch);
}

}  // namespace tilepress
