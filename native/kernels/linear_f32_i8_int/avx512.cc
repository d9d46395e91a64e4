// Two ways, with the same sums. A few rows of activations: dense 4- and 8-bit codes straight from their bytes, sparse
// signed codes expanded in registers. Everything else: the span decoded to operands, which then are dense 8-bit codes.
// `vpdpbusd` wants its first side unsigned, so signed operands are raised to be so, and what that adds, as much times
// the segment's sum of x, is taken off at the segment's end. Each digit is a dot product with the same operands.
#include "kernels/kept_codes_avx512.h"
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

// Sums of products. Of few lines of activations several each, so that products need not wait for one another.
template <int rows, int digits>
struct Sums {
  static constexpr int kChains = rows * digits == 1 ? 4 : rows * digits <= 4 ? 2 : 1;
  __m512i of[rows][digits][kChains];

  void clear() {
    for (auto& row : of) {
      for (auto& digit : row) {
        for (auto& sum : digit) sum = _mm512_setzero_si512();
      }
    }
  }

  // One tile row of unsigned operands times four activations of each row of x.
  [[gnu::always_inline]] void add(const RowsOfX<rows, digits>& x, int64_t input, int tile_row, __m512i operands) {
    for (int i = 0; i < rows; ++i) {
      for (int digit = 0; digit < digits; ++digit) {
        __m512i& sum = of[i][digit][tile_row % kChains];
        sum = _mm512_dpbusd_epi32(sum, operands, lanes(x.of[i][digit] + input + 4 * tile_row));
      }
    }
  }

  [[gnu::always_inline]] __m512i whole(int row, __m128i digit_bits) const {
    __m512i sum = of_digit(row, 0);
    for (int digit = 1; digit < digits; ++digit) {
      sum = _mm512_add_epi32(_mm512_sll_epi32(sum, digit_bits), of_digit(row, digit));
    }
    return sum;
  }

 private:
  [[gnu::always_inline]] __m512i of_digit(int row, int digit) const {
    const auto& sums = of[row][digit];
    if constexpr (kChains == 1) return sums[0];
    if constexpr (kChains == 2) return _mm512_add_epi32(sums[0], sums[1]);
    return _mm512_add_epi32(_mm512_add_epi32(sums[0], sums[1]), _mm512_add_epi32(sums[2], sums[3]));
  }
};

// What the end of a segment has to heed: of int4:g32 and its like scales of two bytes, of segments of kShort inputs;
// scales of any type; zero points.
enum class Ending { plain, scales, zeros };
constexpr int kShort = 2 * kStepInputs;

template <class Work>
void with_ending(const SpanWeights& weights, const IntegerActivations& x, const Work& work) {
  if (weights.zeros) return work.template operator()<Ending::zeros>();
  const bool plain = has_half_scales(*weights.format) && x.segment == kShort;
  plain ? work.template operator()<Ending::plain>() : work.template operator()<Ending::scales>();
}

// Calls work(input) for each step of a segment. What pads the last one lies within its tile.
template <Ending ending, class Work>
[[gnu::always_inline]] inline void for_steps(const Segment& segment, const Work& work) {
  if constexpr (ending == Ending::plain) {
    work(segment.begin);
    work(segment.begin + kStepInputs);
  } else {
    for (int64_t input = segment.begin; input < segment.end; input += kStepInputs) work(input);
  }
}

template <Ending ending, int rows>
class Totals {
 public:
  Totals(const SpanWeights& weights, const IntegerActivations& x, int64_t row)
      : weights_(weights),
        sums_(x.sums + row * x.segment_stride),
        units_(x.units ? x.units + row * x.segment_stride : nullptr),
        stride_(x.segment_stride),
        digit_bits_(_mm_cvtsi32_si128(x.digit_bits)) {
    for (auto& total : of_) total = _mm512_setzero_ps();
  }

  // Operands were raised by 2^raise_bits.
  template <class Sums>
  [[gnu::always_inline]] void add(const Segment& segment, int raise_bits, const Sums& sums) {
    const __m512 scales = ending == Ending::plain ? load_half_scales(weights_, segment.group)
                                                  : load_sixteen_scales(weights_, segment.group);
    for (int i = 0; i < rows; ++i) {
      const int64_t at = i * stride_ + segment.index;
      const __m512i x_sum = _mm512_set1_epi32(sums_[at]);
      __m512i sum = sums.whole(i, digit_bits_);
      if constexpr (ending == Ending::zeros) {
        const __m512i raised = raised_by(weights_, segment.group, 0);
        sum = _mm512_sub_epi32(in_zero_steps(weights_, sum), _mm512_mullo_epi32(raised, x_sum));
      } else {
        sum = _mm512_sub_epi32(sum, _mm512_slli_epi32(x_sum, static_cast<unsigned>(raise_bits)));
      }
      __m512 value = _mm512_cvtepi32_ps(sum);
      if (units_) value = _mm512_mul_ps(value, _mm512_set1_ps(units_[at]));
      of_[i] = _mm512_fmadd_ps(value, scales, of_[i]);
    }
  }

  void add_to(float* out) const {
    for (int i = 0; i < rows; ++i) {
      float* at = out + i * kBlockNeurons;
      _mm512_storeu_ps(at, _mm512_add_ps(_mm512_loadu_ps(at), of_[i]));
    }
  }

 private:
  const SpanWeights weights_;  // a copy, that stores of bytes cannot be thought to change
  const int32_t* sums_;
  const float* units_;
  int64_t stride_;
  __m128i digit_bits_;
  __m512 of_[rows];
};

// Steps are of kStepRows tile rows. `flip` is what raises signed codes, else 0.

// Dense 4-bit codes: two tile rows in a vector.
struct Dense4 {
  static constexpr int kBits = 4, kBytes = kStepRows / 2 * kVectorBytes;

  template <class Rows, class Sums>
  [[gnu::always_inline]] static void step(const Rows& x, int64_t input, const uint8_t* packed, __m512i flip,
                                          Sums& sums) {
    constexpr int kAndXor = 0x6a;  // (a & b) ^ c
    const __m512i low = _mm512_set1_epi8(15);
    for (int row = 0; row < kStepRows; row += 2, packed += kVectorBytes) {
      const __m512i pairs = _mm512_loadu_si512(packed);
      prefetch_ahead(packed);
      sums.add(x, input, row, _mm512_ternarylogic_epi32(pairs, low, flip, kAndXor));
      sums.add(x, input, row + 1, _mm512_ternarylogic_epi32(_mm512_srli_epi16(pairs, 4), low, flip, kAndXor));
    }
  }
};

struct Dense8 {
  static constexpr int kBits = 8, kBytes = kStepRows * kVectorBytes;

  template <class Rows, class Sums>
  [[gnu::always_inline]] static void step(const Rows& x, int64_t input, const uint8_t* packed, __m512i flip,
                                          Sums& sums) {
    for (int row = 0; row < kStepRows; ++row, packed += kVectorBytes) {
      prefetch_ahead(packed);
      sums.add(x, input, row, _mm512_xor_si512(_mm512_loadu_si512(packed), flip));
    }
  }
};

template <class Codes, Ending ending, int rows, int digits>
void dense_rows(const SpanWeights& weights, const IntegerActivations& x, const uint8_t* packed, int raise, int64_t row,
                float* out) {
  const __m512i flip = _mm512_set1_epi8(static_cast<char>(raise));
  const RowsOfX<rows, digits> from(x, row);
  Totals<ending, rows> totals(weights, x, row);
  for_segments(weights, x, [&](const Segment& segment) {
    Sums<rows, digits> sums;
    sums.clear();
    for_steps<ending>(segment, [&](int64_t input) __attribute__((always_inline)) {
      Codes::step(from, input, packed, flip, sums);
      packed += Codes::kBytes;
    });
    totals.add(segment, Codes::kBits - 1, sums);
  });
  totals.add_to(out);
}

template <class Codes, Ending ending, int rows, int digits>
int64_t sparse_rows(const SpanWeights& weights, const IntegerActivations& x, int64_t row, float* out,
                    uint8_t* scratch) {
  const int raise_bits = weights.format->bits - 1;
  const __m512i flip = _mm512_set1_epi8(static_cast<char>(weights.zeros ? 0 : 1 << raise_bits));
  const RowsOfX<rows, digits> from(x, row);
  const uint8_t* mask = weights.mask;
  Codes codes(weights, scratch);
  Totals<ending, rows> totals(weights, x, row);
  for_segments(weights, x, [&](const Segment& segment) {
    const __m512i others = ending == Ending::zeros ? dropped(weights, segment.group) : _mm512_setzero_si512();
    Sums<rows, digits> sums;
    sums.clear();
    for_steps<ending>(segment, [&](int64_t input) __attribute__((always_inline)) {
      prefetch_ahead(mask);
      codes.template next<kStepRows, ending == Ending::zeros>(
          mask, others, [&](int tile_row, __m512i expanded) __attribute__((always_inline)) {
            sums.add(from, input, tile_row, _mm512_xor_si512(expanded, flip));
          });
      mask += kStepRows * kMaskBytes<uint8_t>;
    });
    totals.add(segment, Codes::kBits ? Codes::kBits - 1 : raise_bits, sums);
  });
  totals.add_to(out);
  return codes.taken();
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
    if constexpr (digits == 1) take.template operator()<2>();
    take.template operator()<1>();
  };
  if (x.digit_count == 1) of.template operator()<1>();
  if (x.digit_count == 2) of.template operator()<2>();
  if (x.digit_count == 3) of.template operator()<3>();
}

template <class Codes>
int64_t dense(const SpanWeights& weights, const IntegerActivations& x, const uint8_t* packed, int raise, float* out) {
  with_ending(weights, x, [&]<Ending ending>() {
    in_steps(x, out, [&]<int rows, int digits>(int64_t row, float* to) {
      dense_rows<Codes, ending, rows, digits>(weights, x, packed, raise, row, to);
    });
  });
  return 0;
}

template <class Codes>
int64_t sparse(const SpanWeights& weights, const IntegerActivations& x, float* out, uint8_t* scratch) {
  int64_t taken = 0;
  with_ending(weights, x, [&]<Ending ending>() {
    in_steps(x, out, [&]<int rows, int digits>(int64_t row, float* to) {
      taken = sparse_rows<Codes, ending, rows, digits>(weights, x, row, to, scratch);
    });
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
  if (weights.mask && few) {
    return with_kept_bytes(weights, [&]<class Codes>() { return sparse<Codes>(weights, x, out, scratch); });
  }
  if (!weights.mask && bits == 4) return dense<Dense4>(weights, x, weights.packed, weights.zeros ? 0 : 8, out);
  if (!weights.mask && bits == 8) return dense<Dense8>(weights, x, weights.packed, weights.zeros ? 0 : 128, out);
  return decoded(weights, x, out, scratch);
}

}  // namespace tilepress
