// Two ways, with the same sums. A few rows of activations: dense 4- and 8-bit codes straight from their bytes, sparse
// codes expanded in registers. Everything else: the K-panel decoded to operands, which then are dense 8-bit codes.
// 4-bit codes that stand for other integers are looked up, and as they come in 16-bit tiles, put in the places that
// bytes have in 8-bit ones. `vpdpbusd` wants its first side unsigned, so signed operands are raised to be so, and what
// that adds, as much times the segment's sum of x, is taken off at the segment's end. Each limb is a dot product with
// the same operands.
#pragma once

#include "linear/int8_epilogue_avx512.h"
#include "simd/prefetch_avx512.h"

namespace tilepress {
namespace {

inline __m512i lanes(const int8_t* x) {
  int32_t four;
  std::memcpy(&four, x, 4);
  return _mm512_set1_epi32(four);
}

// Where several rows of activations begin.
template <int rows, int limbs>
struct RowsOfX {
  RowsOfX(const IntegerActivations& x, int64_t row) {
    for (int i = 0; i < rows; ++i) {
      for (int limb = 0; limb < limbs; ++limb) of[i][limb] = x.limbs[limb] + (row + i) * x.stride;
    }
  }

  const int8_t* of[rows][limbs];
};

// Sums of products. Of few lines of activations several each, so that products need not wait for one another.
template <int rows, int limbs>
struct Sums {
  static constexpr int kChains = rows * limbs == 1 ? 4 : rows * limbs <= 4 ? 2 : 1;
  __m512i of[rows][limbs][kChains];

  void clear() {
    for (auto& row : of) {
      for (auto& limb : row) {
        for (auto& sum : limb) sum = _mm512_setzero_si512();
      }
    }
  }

  // One tile row of unsigned operands times four activations of each row of x.
  [[gnu::always_inline]] void add(const RowsOfX<rows, limbs>& x, int64_t input, int tile_row, __m512i operands) {
    for (int i = 0; i < rows; ++i) {
      for (int limb = 0; limb < limbs; ++limb) {
        __m512i& sum = of[i][limb][tile_row % kChains];
        sum = _mm512_dpbusd_epi32(sum, operands, lanes(x.of[i][limb] + input + 4 * tile_row));
      }
    }
  }

  [[gnu::always_inline]] __m512i whole(int row, __m128i limb_bits) const {
    __m512i sum = of_limb(row, 0);
    for (int limb = 1; limb < limbs; ++limb) {
      sum = _mm512_add_epi32(_mm512_sll_epi32(sum, limb_bits), of_limb(row, limb));
    }
    return sum;
  }

 private:
  [[gnu::always_inline]] __m512i of_limb(int row, int limb) const {
    const auto& sums = of[row][limb];
    if constexpr (kChains == 1) return sums[0];
    if constexpr (kChains == 2) return _mm512_add_epi32(sums[0], sums[1]);
    return _mm512_add_epi32(_mm512_add_epi32(sums[0], sums[1]), _mm512_add_epi32(sums[2], sums[3]));
  }
};

// What the end of a segment has to heed: of int4:g32 and its like scales of two bytes, of segments of kShort inputs; of
// mxfp4 powers of two, likewise; scales of any type; zero points.
enum class Ending { plain, powers, scales, zeros };
constexpr int kShort = 2 * kStepInputs;
constexpr bool is_short(Ending ending) { return ending == Ending::plain || ending == Ending::powers; }

template <class Codes, class Work>
void with_ending(const KPanel& weights, const IntegerActivations& x, const Work& work) {
  const bool is_short = x.segment == kShort;
  if constexpr (Codes::kLookedUp) {
    const bool powers = is_short && weights.format->scale == ScaleType::e8m0;
    return powers ? work.template operator()<Ending::powers>() : work.template operator()<Ending::scales>();
  } else {
    if (weights.zeros) return work.template operator()<Ending::zeros>();
    const bool plain = is_short && has_half_scales(*weights.format);
    plain ? work.template operator()<Ending::plain>() : work.template operator()<Ending::scales>();
  }
}

// Calls work(input) for each step of a segment. What pads the last one lies within its tile.
template <Ending ending, class Work>
[[gnu::always_inline]] inline void for_steps(const Segment& segment, const Work& work) {
  if constexpr (is_short(ending)) {
    work(segment.begin);
    work(segment.begin + kStepInputs);
  } else {
    for (int64_t input = segment.begin; input < segment.end; input += kStepInputs) work(input);
  }
}

template <Ending ending, int rows>
class Totals {
 public:
  Totals(const KPanel& weights, const IntegerActivations& x, int64_t row)
      : weights_(weights),
        sums_(x.sums + row * x.segment_stride),
        units_(x.units ? x.units + row * x.segment_stride : nullptr),
        stride_(x.segment_stride),
        limb_bits_(_mm_cvtsi32_si128(x.limb_bits)) {
    for (auto& total : of_) total = _mm512_setzero_ps();
  }

  // Operands were raised by 2^raise_bits.
  template <class Sums>
  [[gnu::always_inline]] void add(const Segment& segment, int raise_bits, const Sums& sums) {
    const __m512 scales = ending == Ending::plain    ? load_half_scales(weights_, segment.group)
                          : ending == Ending::powers ? scales_of<ScaleType::e8m0>(weights_.scales, segment.group)
                                                     : load_sixteen_scales(weights_, segment.group);
    if constexpr (ending == Ending::plain) {
      prefetch_near(static_cast<const uint16_t*>(weights_.scales) + segment.group * kBlockNeurons);
    }
    for (int i = 0; i < rows; ++i) {
      const int64_t at = i * stride_ + segment.index;
      const __m512i x_sum = _mm512_set1_epi32(sums_[at]);
      __m512i sum = sums.whole(i, limb_bits_);
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
  const KPanel weights_;  // a copy, that stores of bytes cannot be thought to change
  const int32_t* sums_;
  const float* units_;
  int64_t stride_;
  __m128i limb_bits_;
  __m512 of_[rows];
};

// Steps are of kStepRows tile rows, their operands raised by 2^(kBits - 1) if they are signed.

// What raises codes of so many bits, as bytes: what those that are 0 become.
inline __m512i raised_codes(const KPanel& weights, int bits) {
  return _mm512_set1_epi8(static_cast<char>(weights.zeros ? 0 : 1 << (bits - 1)));
}

// Codes in the lower halves of bytes, raised.
[[gnu::always_inline]] inline __m512i low_nibbles(__m512i codes, __m512i flip) {
  constexpr int kAndXor = 0x6a;  // (a & b) ^ c
  return _mm512_ternarylogic_epi32(codes, _mm512_set1_epi8(15), flip, kAndXor);
}

// Dense 4-bit codes: two tile rows in a vector.
class Dense4 {
 public:
  static constexpr int kBits = 4, kBytes = kStepRows / 2 * kVectorBytes;
  static constexpr bool kLookedUp = false;

  explicit Dense4(const KPanel& weights) : flip_(raised_codes(weights, kBits)) {}

  template <class Rows, class Sums>
  [[gnu::always_inline]] void step(const Rows& x, int64_t input, const uint8_t* packed, Sums& sums) const {
    for (int row = 0; row < kStepRows; row += 2, packed += kVectorBytes) {
      const __m512i pairs = _mm512_loadu_si512(packed);
      prefetch_ahead(packed);
      sums.add(x, input, row, low_nibbles(pairs, flip_));
      sums.add(x, input, row + 1, low_nibbles(_mm512_srli_epi16(pairs, 4), flip_));
    }
  }

 private:
  __m512i flip_;
};

// Dense codes of eight bits, or operands. Unsigned ones of eight bits were lowered by 128 to be operands, which raising
// them undoes; others are raised by their zero points alone.
template <bool operands>
class Dense8 {
 public:
  static constexpr int kBits = 8, kBytes = kStepRows * kVectorBytes;
  static constexpr bool kLookedUp = false;

  explicit Dense8(const KPanel& weights)
      : flip_(_mm512_set1_epi8(static_cast<char>(!weights.zeros ? 128
                                                 : operands     ? lowered(*weights.format)
                                                                : 0))) {}

  template <class Rows, class Sums>
  [[gnu::always_inline]] void step(const Rows& x, int64_t input, const uint8_t* packed, Sums& sums) const {
    for (int row = 0; row < kStepRows; ++row, packed += kVectorBytes) {
      prefetch_ahead(packed);
      sums.add(x, input, row, _mm512_xor_si512(_mm512_loadu_si512(packed), flip_));
    }
  }

 private:
  __m512i flip_;
};

// For each pair of codes of a line of 16-bit tiles, two rows with two inputs of each neuron, its place in one row with
// four.
struct PairsToFours {
  constexpr PairsToFours() : places() {
    for (int i = 0; i < kLineCodes / 2; ++i) places[i] = static_cast<uint16_t>(i / 2 + i % 2 * kBlockNeurons);
  }
  alignas(64) uint16_t places[kLineCodes / 2];
};

// The integers that 4-bit codes stand for, four times.
inline __m512i integer_table(const Format& format) {
  return _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(format.integers)));
}

// The same, raised.
inline __m512i raised_table(const Format& format) {
  return _mm512_xor_si512(integer_table(format), _mm512_set1_epi8(static_cast<char>(128)));
}

// `vpermb` takes half as long as a permutation of pairs, and looks at the six lowest bits only: of such a table it
// finds the same whatever lies above a code.
#if defined(__AVX512VBMI__)
struct BytesToFours {
  constexpr BytesToFours() : places() {
    for (int i = 0; i < kLineCodes; ++i) {
      places[i] = static_cast<uint8_t>(2 * PairsToFours().places[i / 2] + i % 2);
    }
  }
  alignas(64) uint8_t places[kLineCodes];
};
constexpr BytesToFours kBytesToFours;

[[gnu::always_inline]] inline __m512i pairs_to_fours(__m512i line) {
  return _mm512_permutexvar_epi8(_mm512_load_si512(kBytesToFours.places), line);
}
[[gnu::always_inline]] inline __m512i look_up(__m512i codes, __m512i table) {
  return _mm512_permutexvar_epi8(codes, table);
}
#else
constexpr PairsToFours kPairsToFours;

[[gnu::always_inline]] inline __m512i pairs_to_fours(__m512i line) {
  return _mm512_permutexvar_epi16(_mm512_load_si512(kPairsToFours.places), line);
}
[[gnu::always_inline]] inline __m512i look_up(__m512i codes, __m512i table) {
  return _mm512_shuffle_epi8(table, _mm512_and_si512(codes, _mm512_set1_epi8(15)));
}
#endif

// Dense 4-bit codes of 16-bit tiles, looked up: raised in the table, and put in place two lines at a time.
class DenseTable {
 public:
  static constexpr int kBits = 8, kBytes = Dense4::kBytes;
  static constexpr bool kLookedUp = true;

  explicit DenseTable(const KPanel& weights) : table_(raised_table(*weights.format)) {}

  template <class Rows, class Sums>
  [[gnu::always_inline]] void step(const Rows& x, int64_t input, const uint8_t* packed, Sums& sums) const {
    for (int row = 0; row < kStepRows; row += 2, packed += kVectorBytes) {
      const __m512i pairs = pairs_to_fours(_mm512_loadu_si512(packed));
      prefetch_ahead(packed);
      sums.add(x, input, row, look_up(pairs, table_));
      sums.add(x, input, row + 1, look_up(_mm512_srli_epi16(pairs, 4), table_));
    }
  }

 private:
  __m512i table_;
};

template <class Codes, Ending ending, int rows, int limbs>
void dense_rows(const KPanel& weights, const IntegerActivations& x, const uint8_t* packed, int64_t row, float* out) {
  const Codes codes(weights);
  const RowsOfX<rows, limbs> from(x, row);
  Totals<ending, rows> accumulators(weights, x, row);
  for_segments(weights, x, [&](const Segment& segment) {
    Sums<rows, limbs> sums;
    sums.clear();
    for_steps<ending>(segment, [&](int64_t input) __attribute__((always_inline)) {
      codes.step(from, input, packed, sums);
      packed += Codes::kBytes;
    });
    accumulators.add(segment, Codes::kBits - 1, sums);
  });
  accumulators.add_to(out);
}

// Rows of activations, a few at a time, sharing what is read of the weights. Looked-up codes meet floats only, in two
// limbs or three.
template <class Codes, class Rows>
void in_steps(const IntegerActivations& x, float* out, const Rows& rows) {
  const auto of = [&]<int limbs>() {
    int64_t row = 0;
    const auto take = [&]<int count>() {
      for (; row + count <= x.batch; row += count) {
        rows.template operator()<count, limbs>(row, out + row * kBlockNeurons);
      }
    };
    take.template operator()<8 / limbs>();
    if constexpr (limbs == 1) take.template operator()<4>();
    if constexpr (limbs < 3) take.template operator()<3>(), take.template operator()<2>();
    take.template operator()<1>();
  };
  if constexpr (!Codes::kLookedUp) {
    if (x.limb_count == 1) of.template operator()<1>();
  }
  if (x.limb_count == 2) of.template operator()<2>();
  if (x.limb_count == 3) of.template operator()<3>();
}

template <class Codes>
int64_t dense(const KPanel& weights, const IntegerActivations& x, const uint8_t* packed, float* out) {
  with_ending<Codes>(weights, x, [&]<Ending ending>() {
    in_steps<Codes>(x, out, [&]<int rows, int limbs>(int64_t row, float* to) {
      dense_rows<Codes, ending, rows, limbs>(weights, x, packed, row, to);
    });
  });
  return 0;
}

// Of sparse codes, bytes as kept_codes_avx512.h has them, or what they were looked up as if Codes::kLookedUp; raised
// already if Codes::kRaised.
template <class Codes, Ending ending, int rows, int limbs>
int64_t sparse_rows(const KPanel& weights, const IntegerActivations& x, int64_t row, float* out, uint8_t* scratch) {
  constexpr bool zeros = ending == Ending::zeros;
  const int bits = Codes::kBits ? Codes::kBits : weights.format->bits;
  const __m512i flip = raised_codes(weights, bits);
  const RowsOfX<rows, limbs> from(x, row);
  const uint8_t* mask = weights.mask;
  Codes codes(weights, scratch);
  Totals<ending, rows> accumulators(weights, x, row);
  for_segments(weights, x, [&](const Segment& segment) {
    const __m512i others = zeros ? dropped(weights, segment.group) : flip;
    Sums<rows, limbs> sums;
    sums.clear();
    for_steps<ending>(segment, [&](int64_t input) __attribute__((always_inline)) {
      prefetch_ahead(mask);
      codes.template next<kStepRows, zeros || Codes::kRaised>(
          mask, others, [&](int tile_row, __m512i expanded) __attribute__((always_inline)) {
            const __m512i placed = Codes::kLookedUp ? pairs_to_fours(expanded) : expanded;
            sums.add(from, input, tile_row, Codes::kRaised ? placed : _mm512_xor_si512(placed, flip));
          });
      mask += kStepRows * kVectorBytes / 8;
    });
    accumulators.add(segment, bits - 1, sums);
  });
  accumulators.add_to(out);
  return codes.consumed();
}

template <class Codes>
int64_t sparse(const KPanel& weights, const IntegerActivations& x, float* out, uint8_t* scratch) {
  int64_t consumed = 0;
  with_ending<Codes>(weights, x, [&]<Ending ending>() {
    in_steps<Codes>(x, out, [&]<int rows, int limbs>(int64_t row, float* to) {
      consumed = sparse_rows<Codes, ending, rows, limbs>(weights, x, row, to, scratch);
    });
  });
  return consumed;
}

// Whatever the weights are. Simd brings what unpack_block.h asks for.
template <class Simd>
int64_t linear_any(const KPanel& weights, const IntegerActivations& x, float* out, uint8_t* scratch) {
  const int bits = weights.format->bits;
  if (!weights.mask && weights.format->integers) return dense<DenseTable>(weights, x, weights.packed, out);
  if (!weights.mask && bits == 4) return dense<Dense4>(weights, x, weights.packed, out);
  if (!weights.mask && bits == 8) return dense<Dense8<false>>(weights, x, weights.packed, out);
  uint8_t* operands = operands_in(weights, scratch);
  const int64_t consumed = decode_operands<Simd>(weights, operands, scratch);
  if (consumed >= 0) dense<Dense8<true>>(weights, x, operands, out);
  return consumed;
}

}  // namespace
}  // namespace tilepress
