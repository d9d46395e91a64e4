#include "kernels/expand_lanes_avx512.h"
#include "kernels/linear_f32_f32_any/lookups_avx512.h"
#include "kernels/unpack/avx2.h"

namespace tilepress {
namespace {

// Sixteen codes from memory, as the widths that values are made of.
template <class Code, class Values>
[[gnu::always_inline]] inline Floats values_at(const Values& values, const Code* codes) {
  const auto* from = reinterpret_cast<const __m128i*>(codes);
  if constexpr (sizeof(Code) == 1) return values(std::bit_cast<Halves>(_mm256_cvtepu8_epi16(_mm_loadu_si128(from))), 0);
  return values(widen(load<Halves>(codes)), 0);
}

// out [rows, 16] += the products of inputs `first` to `end` of a span, all in one group, with so many rows of x.
template <class Kind, int rows, class Values>
[[gnu::noinline]] void multiply_kept(const Values& values_there, const typename Kind::Code*& kept_there,
                                     const uint8_t* mask, int64_t first, int64_t end, const Group& group,
                                     const FewRows<rows>& x, float* out) {
  constexpr int kPack = Kind::pack;
  const Values values = values_there;
  const typename Kind::Code* kept = kept_there;
  Floats sums[rows][kPack] = {};
#pragma GCC unroll 1
  for (int64_t input = first; input < end; input += kPack) {
    for_vectors<kPack>(mask + 2 * input, kept,
                       [&](int part, __mmask16 places, const typename Kind::Code* codes)
                           __attribute__((always_inline)) {
                             const Floats weights = _mm512_maskz_expand_ps(places, values_at(values, codes));
#pragma GCC unroll 4
                             for (int row = 0; row < rows; ++row) {
                               const auto four = std::bit_cast<Floats>(for_neurons<kPack>(x.of[row] + input));
                               sums[row][part] = fused(weights, four, sums[row][part]);
                             }
                           });
  }
  kept_there = kept;
#pragma GCC unroll 4
  for (int row = 0; row < rows; ++row) {
    if (row == x.count) break;
    float* to = out + row * kBlockNeurons;
    const Floats sum = sum_inputs(sums[row]), before = load<Floats>(to);
    store(Kind::scaled ? fused(sum, load<Floats>(group.scales), before) : sum + before, to);
  }
}

struct Expanding : Avx512Lookups<Avx2> {
  static constexpr int kFewSparseRows = 4;

  template <class Kind, class Values>
  static void multiply_sparse(const Values& values, const SpanWeights& span, const FloatActivations<float>& x,
                              const typename Kind::Code* kept, float* out) {
    if (x.batch == 1) return multiply_rows<Kind, 1>(values, span, x, kept, out);
    if (x.batch == 2) return multiply_rows<Kind, 2>(values, span, x, kept, out);
    multiply_rows<Kind, kFewSparseRows>(values, span, x, kept, out);
  }

 private:
  template <class Kind, int rows, class Values>
  static void multiply_rows(const Values& values, const SpanWeights& span, const FloatActivations<float>& x,
                            const typename Kind::Code* kept, float* out) {
    const FewRows<rows> few(x, 0);
    if constexpr (!Kind::scaled) return multiply_kept<Kind>(values, kept, span.mask, 0, span.inputs, {}, few, out);
    Group group = {};
    for (int64_t first = 0, end; first < span.inputs; first = end) {
      load_group(span, (span.first + first) / span.format->group, values.unit(), group);
      end = least(span.inputs, group.end - span.first);
      multiply_kept<Kind>(values, kept, span.mask, first, end, group, few, out);
    }
  }
};

}  // namespace

int64_t avx512::linear_f32_span(const SpanWeights& span, const FloatActivations<float>& x, float* out,
                                uint8_t* scratch) {
  return LinearSpan<Expanding>{span, x, out, scratch}();
}

}  // namespace tilepress
