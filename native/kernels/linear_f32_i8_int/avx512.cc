// Two ways, with the same sums. A few rows of activations: dense 4- and 8-bit codes straight from their bytes, sparse
// signed codes expanded in registers. Everything else: the span decoded to operands, which then are dense 8-bit codes.
// `vpdpbusd` wants its first side unsigned, so signed operands are raised to be so, and what that adds, as much times
// the segment's sum of x, is taken off at the segment's end. Each digit is a dot product with the same operands.
#include "kernels/unpack/avx512.h"

#include "kernels/linear_f32_i8_int/finish_avx512.h"
#include "kernels/linear_f32_i8_int/linear_span.h"

namespace tilepress {
namespace {

inline __m512i lanes(const int8_t* x) {
  int32_t four;
  std::memcpy(&four, x, 4);
  return _mm512_set1_epi32(four);
}

// Where several rows of activations begin.
template <int rows, int digits>
struct RowsOfX {
  RowsOfX(const IntegerActivations& x, int64_t row) {
    for (int i = 0; i < rows; ++i) {
      for (int digit = 0; digit < digits; ++digit) of[i][digit] = x.digits[digit] + (row + i) * x.stride;
    }
  }

  const int8_t* of[rows][digits];
};

template <int rows, int digits>
struct Sums {
  __m512i of[rows][digits];

  void clear() {
    for (auto& row : of) {
      for (auto& sum : row) sum = _mm512_setzero_si512();
    }
  }

  // One tile row of unsigned operands times four activations of each row of x.
  [[gnu::always_inline]] void add(const RowsOfX<rows, digits>& x, int64_t input, __m512i operands) {
    for (int i = 0; i < rows; ++i) {
      for (int digit = 0; digit < digits; ++digit) {
        of[i][digit] = _mm512_dpbusd_epi32(of[i][digit], operands, lanes(x.of[i][digit] + input));
      }
    }
  }

  __m512i whole(int row, __m128i digit_bits) const {
    __m512i sum = of[row][0];
    for (int digit = 1; digit < digits; ++digit) {
      sum = _mm512_add_epi32(_mm512_sll_epi32(sum, digit_bits), of[row][digit]);
    }
    return sum;
  }
};

template <int rows>
struct Totals {
  __m512 of[rows];

  Totals() {
    for (auto& total : of) total = _mm512_setzero_ps();
  }

  template <class Sums>
  [[gnu::always_inline]] void add(const SpanWeights& weights, const IntegerActivations& x, const Segment& segment,
                                  int64_t row, int raise, const Sums& sums) {
    const __m512 scales = load_sixteen_scales(weights, segment.group);
    const __m512i raised = raised_by(weights, segment.group, raise);
    const __m128i digit_bits = _mm_cvtsi32_si128(x.digit_bits);
    for (int i = 0; i < rows; ++i) {
      const int64_t at = (row + i) * x.segment_stride + segment.index;
      const __m512i less = _mm512_mullo_epi32(raised, _mm512_set1_epi32(x.sums[at]));
      __m512 value = _mm512_cvtepi32_ps(_mm512_sub_epi32(in_zero_steps(weights, sums.whole(i, digit_bits)), less));
      if (x.units) value = _mm512_mul_ps(value, _mm512_set1_ps(x.units[at]));
      of[i] = _mm512_fmadd_ps(value, scales, of[i]);
    }
  }

  void add_to(float* out) const {
    for (int i = 0; i < rows; ++i) {
      float* at = out + i * kBlockNeurons;
      _mm512_storeu_ps(at, _mm512_add_ps(_mm512_loadu_ps(at), of[i]));
    }
  }
};

// Dense 4-bit codes: two tile rows in a vector. `flip` is 8 for signed codes, which it raises by 8, else 0.
struct Dense4 {
  static constexpr int kRows = 2;

  template <class Rows, class Sums>
  [[gnu::always_inline]] static void step(const Rows& x, int64_t input, const uint8_t* packed, __m512i flip,
                                          Sums& sums) {
    constexpr int kAndXor = 0x6a;  // (a & b) ^ c
    const __m512i pairs = _mm512_loadu_si512(packed), low = _mm512_set1_epi8(15);
    sums.add(x, input, _mm512_ternarylogic_epi32(pairs, low, flip, kAndXor));
    sums.add(x, input + 4, _mm512_ternarylogic_epi32(_mm512_srli_epi16(pairs, 4), low, flip, kAndXor));
  }
};

struct Dense8 {
  static constexpr int kRows = 1;

  template <class Rows, class Sums>
  [[gnu::always_inline]] static void step(const Rows& x, int64_t input, const uint8_t* packed, __m512i flip,
                                          Sums& sums) {
    sums.add(x, input, _mm512_xor_si512(_mm512_loadu_si512(packed), flip));
  }
};

template <class Codes, int rows, int digits>
void dense_rows(const SpanWeights& weights, const IntegerActivations& x, const uint8_t* packed, int raise, int64_t row,
                float* out) {
  const __m512i flip = _mm512_set1_epi8(static_cast<char>(raise));
  const RowsOfX<rows, digits> from(x, row);
  Totals<rows> totals;
  for_segments(weights, x, [&](const Segment& segment) {
    Sums<rows, digits> sums;
    sums.clear();
    for (int64_t input = segment.begin; input < segment.end; input += 4 * Codes::kRows, packed += kVectorBytes) {
      prefetch_ahead(packed);
      Codes::step(from, input, packed, flip, sums);
    }
    totals.add(weights, x, segment, row, raise, sums);
  });
  totals.add_to(out);
}

template <bool bytes, int rows, int digits>
int64_t sparse_rows(const SpanWeights& weights, const IntegerActivations& x, int raise, int64_t row, float* out) {
  const __m512i flip = _mm512_set1_epi8(static_cast<char>(weights.zeros ? 0 : raise));
  const RowsOfX<rows, digits> from(x, row);
  const uint8_t* mask = weights.mask;
  Avx512Stream stream(weights);
  Totals<rows> totals;
  for_segments(weights, x, [&](const Segment& segment) {
    const __m512i others = dropped(weights, segment.group);
    Sums<rows, digits> sums;
    sums.clear();
    for (int64_t input = segment.begin; input < segment.end; input += 4, mask += 8) {
      uint64_t bits;
      std::memcpy(&bits, mask, 8);
      const __m512i operands = stream.template expand<bytes>(bits, others);
      sums.add(from, input, _mm512_xor_si512(operands, flip));
    }
    prefetch_ahead(mask);
    totals.add(weights, x, segment, row, raise, sums);
  });
  totals.add_to(out);
  return stream.taken() < 0 ? -1 : stream.taken() - weights.taken;
}

// Rows of activations, a few at a time, sharing what is read of the weights.
template <class Rows>
void in_steps(const IntegerActivations& x, float* out, const Rows& rows) {
  const auto of = [&]<int digits>() {
    int64_t row = 0;
    const auto take = [&]<int count>() {
      for (; row + count <= x.batch; row += count) {
        rows.template operator()<count, digits>(row, out + row * kBlockNeurons);
      }
    };
    take.template operator()<8 / digits>();
    take.template operator()<4 / digits>();
    take.template operator()<1>();
  };
  if (x.digit_count == 1) of.template operator()<1>();
  if (x.digit_count == 2) of.template operator()<2>();
  if (x.digit_count == 3) of.template operator()<3>();
}

template <class Codes>
int64_t dense(const SpanWeights& weights, const IntegerActivations& x, const uint8_t* packed, int raise, float* out) {
  in_steps(x, out, [&]<int rows, int digits>(int64_t row, float* to) {
    dense_rows<Codes, rows, digits>(weights, x, packed, raise, row, to);
  });
  return 0;
}

template <bool bytes>
int64_t sparse(const SpanWeights& weights, const IntegerActivations& x, float* out) {
  const int raise = 1 << (weights.format->bits - 1);
  int64_t taken = 0;
  in_steps(x, out, [&]<int rows, int digits>(int64_t row, float* to) {
    taken = sparse_rows<bytes, rows, digits>(weights, x, raise, row, to);
  });
  return taken;
}

// Operands of unsigned codes are lowered by 128 where they have eight bits; raising them by as much, and others by
// their zero points alone, gives the codes back.
int64_t decoded(const SpanWeights& weights, const IntegerActivations& x, float* out, uint8_t* scratch) {
  uint8_t* operands = operands_in(weights, scratch);
  const int64_t taken = decode_operands<Avx512>(weights, operands, scratch);
  if (taken < 0) return taken;
  const int raise = weights.zeros ? lowered(*weights.format) : 128;
  dense<Dense8>(weights, x, operands, raise, out);
  return taken;
}

}  // namespace

int64_t avx512::linear_integer_span(const SpanWeights& weights, const IntegerActivations& x, float* out,
                                    uint8_t* scratch) {
  constexpr int64_t kFewRows = 8;  // above, expanding anew for each eight costs more than keeping what was expanded
  const int bits = weights.format->bits;
  const bool few = x.batch * x.digit_count <= kFewRows;
  if (weights.mask && few) return bits == 8 ? sparse<true>(weights, x, out) : sparse<false>(weights, x, out);
  if (!weights.mask && bits == 4) return dense<Dense4>(weights, x, weights.packed, weights.zeros ? 0 : 8, out);
  if (!weights.mask && bits == 8) return dense<Dense8>(weights, x, weights.packed, weights.zeros ? 0 : 128, out);
  return decoded(weights, x, out, scratch);
}

}  // namespace tilepress
