// Beside what dense_avx512.h does, sparse operands for a few rows are expanded in registers, to lanes of 32 bits. A lane
// has the operand twice, above times 2^7, and one of x its lower 14 bits and above them, times 2^7, the rest: `vpdpwssd`
// adds up both products, which is that with the whole of x, however many digits it has.
#include "kernels/expand_lanes_avx512.h"
#include "kernels/linear_f32_i8_int/dense_avx512.h"
#include "kernels/unpack/avx2.h"

namespace tilepress {
namespace {

constexpr int kFewSparseRows = 4;

[[gnu::always_inline]] inline __m512i sixteen(const int8_t* bytes) {
  return _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes)));
}

// Two numbers of 16 bits in a lane, the upper one times 2^kDigitBits.
[[gnu::always_inline]] inline __m512i in_halves(__m512i lower, __m512i upper) {
  constexpr int kSelect = 0xca;  // a ? b : c
  const __m512i shifted = _mm512_slli_epi32(upper, 16 + kDigitBits);
  return _mm512_ternarylogic_epi32(_mm512_set1_epi32(0xffff), lower, shifted, kSelect);
}

// A row of x as lanes: of a number its lowest 2 * kDigitBits, with the sign that these have, and what is left above.
void lay_out(const IntegerActivations& x, int64_t row, int64_t inputs, int32_t* lanes) {
  constexpr int kLower = 2 * kDigitBits, kRest = 32 - kLower;
  const __m128i digit_bits = _mm_cvtsi32_si128(x.digit_bits);
  for (int64_t input = 0; input < inputs; input += 16) {
    __m512i number = _mm512_setzero_si512();
    for (int digit = 0; digit < x.digit_count; ++digit) {
      const __m512i next = sixteen(x.digits[digit] + row * x.stride + input);
      number = _mm512_add_epi32(_mm512_sll_epi32(number, digit_bits), next);
    }
    const __m512i lower = _mm512_srai_epi32(_mm512_slli_epi32(number, kRest), kRest);
    const __m512i upper = _mm512_srai_epi32(_mm512_sub_epi32(number, lower), kLower);
    _mm512_storeu_si512(lanes + input, in_halves(lower, upper));
  }
}

// The sums of a segment, as Totals takes them.
template <int rows, int pack>
struct ExpandedSums {
  SignedWords of[rows][pack] = {};

  [[gnu::always_inline]] __m512i whole(int row, __m128i) const { return std::bit_cast<__m512i>(sum_inputs(of[row])); }
};

template <Ending ending, int rows, int pack>
void expanded_rows(const SpanWeights& weights, const IntegerActivations& x, const int8_t* kept, const int32_t* lanes,
                   int64_t stride, float* out) {
  const uint8_t* mask = weights.mask;
  Totals<ending, rows> totals(weights, x, 0);
  for_segments(weights, x, [&](const Segment& segment) {
    ExpandedSums<rows, pack> sums;
#pragma GCC unroll 1
    for (int64_t input = segment.begin; input < segment.end; input += pack, mask += 2 * pack) {
      for_vectors<pack>(mask, kept, [&](int part, __mmask16 places, const int8_t* codes) __attribute__((always_inline)) {
        const __m512i codes_there = sixteen(codes);
        const __m512i operands = _mm512_maskz_expand_epi32(places, in_halves(codes_there, codes_there));
#pragma GCC unroll 4
        for (int row = 0; row < rows; ++row) {
          auto& sum = sums.of[row][part];
          const __m512i times = for_neurons<pack>(lanes + row * stride + input);
          sum = std::bit_cast<SignedWords>(_mm512_dpwssd_epi32(std::bit_cast<__m512i>(sum), operands, times));
        }
      });
    }
    totals.add(segment, -1, sums);
  });
  totals.add_to(out);
}

template <int pack>
struct Expanded {
  static constexpr bool kLookedUp = pack == 2;  // in 16-bit tiles
};

template <int pack>
void multiply_expanded(const SpanWeights& weights, const IntegerActivations& x, const int8_t* kept, uint8_t* memory,
                       float* out) {
  auto* lanes = reinterpret_cast<int32_t*>(memory);
  const int64_t stride = weights.tiles * tile_inputs(weights.operand_bits);
  for (int64_t row = 0; row < x.batch; ++row) lay_out(x, row, weights.inputs, lanes + row * stride);
  with_ending<Expanded<pack>>(weights, x, [&]<Ending ending>() {
    if constexpr (ending != Ending::zeros) {
      if (x.batch == 1) return expanded_rows<ending, 1, pack>(weights, x, kept, lanes, stride, out);
      if (x.batch == 2) return expanded_rows<ending, 2, pack>(weights, x, kept, lanes, stride, out);
      if (x.batch == 3) return expanded_rows<ending, 3, pack>(weights, x, kept, lanes, stride, out);
      expanded_rows<ending, kFewSparseRows, pack>(weights, x, kept, lanes, stride, out);
    }
  });
}

// The kept operands become bytes, where they are not.
int64_t expanded(const SpanWeights& weights, const IntegerActivations& x, float* out, uint8_t* scratch) {
  const Kept kept = unpack_kept<Avx2>(weights, scratch);
  if (kept.count < 0) return -1;
  if (weights.format->bits < 8) to_operands(*weights.format, scratch, kept.count + kKeptBefore);
  const auto* operands = reinterpret_cast<const int8_t*>(kept.codes);
  uint8_t* memory = operands_in(weights, scratch);
  weights.operand_bits == 8 ? multiply_expanded<4>(weights, x, operands, memory, out)
                            : multiply_expanded<2>(weights, x, operands, memory, out);
  return kept.count;
}

}  // namespace

int64_t avx512_vnni::linear_integer_span(const SpanWeights& weights, const IntegerActivations& x, float* out,
                                         uint8_t* scratch) {
  if (weights.mask && !weights.zeros && x.batch <= kFewSparseRows) return expanded(weights, x, out, scratch);
  return linear_any<Avx2>(weights, x, out, scratch);
}

}  // namespace tilepress
