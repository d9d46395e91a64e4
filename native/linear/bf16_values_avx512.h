// Codes to bf16 values in the order of vdpbf16ps and AMX: a row is one vector, two inputs of 16 neurons.
//
// A line is 64 codes, four inputs of 16 neurons in the order of the tile. Codes are looked up as words (vpermw), or as
// low and high bytes apart: vpermb has 64 entries, vpermi2b 128.
//
// Values of bytes (SmallCodes, SmallWords, ZeroPoints, SignedCodes, LargeCodes) provide
//   accepts(weights)    whether they support the weights
//   begin_group(group)  called at the start of each group
//   rows(codes)         the two rows of a line
//   dropped()           code (or codes) that stand for zero, for the places of dropped weights
// Values of words (16-bit tiles) provide begin_group(group) and row(words).
#pragma once

#include "linear/decode_bf16.h"
#include "pack/unpack_avx512_vbmi2.h"

namespace tilepress {
namespace {

constexpr int kLineInputs = 4, kStepLines = 2, kStepInputs = kLineInputs * kStepLines;

struct RowPair {
  __m512i first, second;  // inputs 0 and 1, inputs 2 and 3
};

// Order of the bytes of 64 codes in which interleaving low and high bytes (vpunpck, within 128 bits) gives whole rows.
struct InterleavingOrder {
  constexpr explicit InterleavingOrder(int operand_bits) : places() {
    for (int i = 0; i < 64; ++i) {
      const int second = i % 16 / 8, place = i / 16 * 8 + i % 8;  // the row, and the place in it: 2 * neuron + input
      const int in_bytes = 4 * (place / 2) + 2 * second + place % 2;
      places[i] = static_cast<uint8_t>(operand_bits == 8 ? in_bytes : 32 * second + place);
    }
  }

  alignas(64) uint8_t places[64];
};
constexpr InterleavingOrder kOrderOf8(8), kOrderOf16(16);

inline __m512i interleaving_order(int operand_bits) {
  return _mm512_load_si512(operand_bits == 8 ? kOrderOf8.places : kOrderOf16.places);
}

// Low and high bytes of 64 values, for vpermb.
struct ByteTable {
  explicit ByteTable(const uint16_t* values) {
    const auto* from = reinterpret_cast<const __m512i*>(values);
    const __m512i one = _mm512_loadu_si512(from), two = _mm512_loadu_si512(from + 1);
    low = _mm512_inserti64x4(_mm512_castsi256_si512(_mm512_cvtepi16_epi8(one)), _mm512_cvtepi16_epi8(two), 1);
    const __m512i upper_one = _mm512_srli_epi16(one, 8), upper_two = _mm512_srli_epi16(two, 8);
    high =
        _mm512_inserti64x4(_mm512_castsi256_si512(_mm512_cvtepi16_epi8(upper_one)), _mm512_cvtepi16_epi8(upper_two), 1);
  }

  // Repeats the first `count` entries, a power of two, over the table: bits above a code are ignored then.
  void repeat(int count) {
    alignas(64) uint8_t places[64];
    for (int i = 0; i < 64; ++i) places[i] = static_cast<uint8_t>(i & (count - 1));
    const __m512i order = _mm512_load_si512(places);
    low = _mm512_permutexvar_epi8(order, low);
    high = _mm512_permutexvar_epi8(order, high);
  }

  __m512i low, high;
};

// A code that stands for zero; -1 if there is none.
inline int zero_code(const Format& format) {
  for (int code = 0; code < 1 << format.bits; ++code) {
    if (format.values[code] == 0.0f) return code;
  }
  return -1;
}

class Values {
 public:
  explicit Values(const KPanel& weights) : order_(interleaving_order(weights.operand_bits)) {}
  void begin_group(int64_t) {}
  __m512i dropped() const { return dropped_; }

 protected:
  static RowPair interleave(__m512i low, __m512i high) {
    return {_mm512_unpacklo_epi8(low, high), _mm512_unpackhi_epi8(low, high)};
  }
  __m512i order_, dropped_ = _mm512_setzero_si512();
};

// Codes of at most six bits. Dense weights may have anything in the bits above a code.
class SmallCodes : public Values {
 public:
  static bool accepts(const KPanel& weights) {
    const Format& format = *weights.format;
    return format.bits <= 6 && !weights.zeros && (!weights.mask || format.bits < 6 || zero_code(format) >= 0);
  }

  explicit SmallCodes(const KPanel& weights) : Values(weights) {
    const int bits = weights.format->bits;
    const bool room = weights.mask && bits < 6;  // the entry after the last code is 0
    ByteTable table(weights.format->bf16s);
    if (!room) table.repeat(1 << bits);
    low_ = table.low;
    high_ = table.high;
    if (weights.mask) dropped_ = _mm512_set1_epi8(static_cast<char>(room ? 1 << bits : zero_code(*weights.format)));
  }

  RowPair rows(__m512i codes) const {
    const __m512i ordered = _mm512_permutexvar_epi8(order_, codes);
    return interleave(_mm512_permutexvar_epi8(ordered, low_), _mm512_permutexvar_epi8(ordered, high_));
  }

 private:
  __m512i low_, high_;
};

// For vpshufb: widens the first two bytes of each 32-bit lane, or the last two, to words.
struct ToWords {
  constexpr explicit ToWords(int first) : places() {
    for (int i = 0; i < 64; ++i) places[i] = static_cast<uint8_t>(i % 2 ? 0x80 : i % 16 / 4 * 4 + first + i % 4 / 2);
  }
  alignas(64) uint8_t places[64];
};
constexpr ToWords kFirstToWords(0), kLastToWords(2);

// Codes of at most five bits in 8-bit tiles, looked up as words by vpermw, which uses the lowest five bits of a word.
// For dense 4-bit codes the table is repeated, so that the fifth bit is ignored; for sparse ones it means "dropped".
class SmallWords {
 public:
  static bool accepts(const KPanel& weights) {
    const Format& format = *weights.format;
    const bool fits = format.bits < 5 || (format.bits == 5 && (!weights.mask || zero_code(format) >= 0));
    return fits && !weights.zeros && weights.operand_bits == 8;
  }

  explicit SmallWords(const KPanel& weights) {
    const int bits = weights.format->bits;
    const bool room = weights.mask && bits < 5;  // the entry after the last code is 0
    table_ = _mm512_loadu_si512(weights.format->bf16s);
    if (bits == 4 && !weights.mask) table_ = _mm512_broadcast_i64x4(_mm512_castsi512_si256(table_));
    if (weights.mask) dropped_ = _mm512_set1_epi8(static_cast<char>(room ? 1 << bits : zero_code(*weights.format)));
  }

  void begin_group(int64_t) {}
  __m512i dropped() const { return dropped_; }

  RowPair rows(__m512i codes) const { return look_up(to_words(codes)); }
  static RowPair to_words(__m512i codes) {
    return {_mm512_shuffle_epi8(codes, _mm512_load_si512(kFirstToWords.places)),
            _mm512_shuffle_epi8(codes, _mm512_load_si512(kLastToWords.places))};
  }
  RowPair look_up(const RowPair& words) const {
    return {_mm512_permutexvar_epi16(words.first, table_), _mm512_permutexvar_epi16(words.second, table_)};
  }

 private:
  __m512i table_, dropped_ = _mm512_setzero_si512();
};

// Unsigned codes of at most four bits with zero points: looked up as float32 by vpermps, which uses the lowest four
// bits of a lane, minus the neuron's zero point. The difference has eight bits and a sign, which bf16 represents.
class ZeroPoints {
 public:
  static bool accepts(const KPanel& weights) {
    return weights.zeros && weights.format->bits <= 4 && weights.operand_bits == 8;
  }

  explicit ZeroPoints(const KPanel& weights)
      : zeros_(weights.zeros),
        table_(_mm512_loadu_ps(weights.format->values)),
        step_(_mm512_set1_ps(zero_step(*weights.format))),
        shift_(_mm_cvtsi32_si128(zero_shift(*weights.format))) {}

  void begin_group(int64_t group) {
    const auto* from = reinterpret_cast<const __m128i*>(zeros_ + group * kBlockNeurons);
    const __m512i zeros = _mm512_cvtepu8_epi32(_mm_loadu_si128(from));
    zero_ = _mm512_mul_ps(_mm512_cvtepi32_ps(zeros), step_);
    dropped_ = _mm512_mullo_epi32(_mm512_srl_epi32(zeros, shift_), _mm512_set1_epi32(0x01010101));
  }
  __m512i dropped() const { return dropped_; }

  RowPair rows(__m512i codes) const {
    return {row(codes, _mm512_srli_epi32(codes, 8)), row(_mm512_srli_epi32(codes, 16), _mm512_srli_epi32(codes, 24))};
  }

 private:
  [[gnu::always_inline]] __m512i value(__m512i codes) const {
    return _mm512_castps_si512(_mm512_sub_ps(_mm512_permutexvar_ps(codes, table_), zero_));
  }

  // Two inputs of each neuron as bf16: the upper halves of floats whose lower halves are 0.
  [[gnu::always_inline]] __m512i row(__m512i first, __m512i second) const {
    return _mm512_or_si512(_mm512_srli_epi32(value(first), 16), value(second));
  }

  const uint8_t* zeros_;
  __m512 table_, step_, zero_ = _mm512_setzero_ps();
  __m128i shift_;
  __m512i dropped_ = _mm512_setzero_si512();
};

// 8-bit minifloats, whose highest bit is the sign: a table of 128 magnitudes.
class SignedCodes : public Values {
 public:
  static bool accepts(const KPanel& weights) {
    const Format& format = *weights.format;
    return format.bits == 8 && format.rounding == Rounding::minifloat && format.values[0] == 0.0f;
  }

  explicit SignedCodes(const KPanel& weights) : Values(weights) {
    for (int i = 0; i < 2; ++i) {
      const ByteTable table(weights.format->bf16s + 64 * i);
      low_[i] = table.low;
      high_[i] = table.high;
    }
  }

  RowPair rows(__m512i codes) const {
    constexpr int kOrAnd = 0xf8;  // a | (b & c)
    const __m512i ordered = _mm512_permutexvar_epi8(order_, codes);
    const __m512i low = _mm512_permutex2var_epi8(low_[0], ordered, low_[1]);
    const __m512i high = _mm512_permutex2var_epi8(high_[0], ordered, high_[1]);
    return interleave(low, _mm512_ternarylogic_epi32(high, ordered, _mm512_set1_epi8(static_cast<char>(0x80)), kOrAnd));
  }

 private:
  __m512i low_[2], high_[2];
};

// Any codes of seven or eight bits.
class LargeCodes : public Values {
 public:
  static bool accepts(const KPanel& weights) {
    const Format& format = *weights.format;
    return format.bits >= 7 && format.bits <= 8 && !weights.zeros && (!weights.mask || zero_code(format) >= 0);
  }

  explicit LargeCodes(const KPanel& weights) : Values(weights) {
    for (int i = 0; i < 4; ++i) {
      const ByteTable table(weights.format->bf16s + 64 * i);
      low_[i] = table.low;
      high_[i] = table.high;
    }
    if (weights.mask) dropped_ = _mm512_set1_epi8(static_cast<char>(zero_code(*weights.format)));
  }

  RowPair rows(__m512i codes) const {
    const __m512i ordered = _mm512_permutexvar_epi8(order_, codes);
    const __mmask64 upper = _mm512_movepi8_mask(ordered);
    return interleave(look_up(low_, ordered, upper), look_up(high_, ordered, upper));
  }

 private:
  static __m512i look_up(const __m512i* table, __m512i codes, __mmask64 upper) {
    return _mm512_mask_blend_epi8(upper, _mm512_permutex2var_epi8(table[0], codes, table[1]),
                                  _mm512_permutex2var_epi8(table[2], codes, table[3]));
  }

  __m512i low_[4], high_[4];
};

// 4-bit codes in 16-bit tiles, where one word per code is a row already. Looked up by vpermw, which uses the lowest
// five bits of a word; the table is repeated, so that the fifth is ignored.
class WordTable {
 public:
  static constexpr bool kNoNegativeZero = true;

  explicit WordTable(const KPanel& weights) {
    const __m256i values = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(weights.format->bf16s));
    const __m512i table = _mm512_broadcast_i64x4(values);
    table_ = _mm512_maskz_mov_epi16(_mm512_test_epi16_mask(table, _mm512_set1_epi16(0x7fff)), table);
  }
  void begin_group(int64_t) {}
  __m512i row(__m512i words) const { return _mm512_permutexvar_epi16(words, table_); }

 private:
  __m512i table_;
};

// Words without a table.
struct PlainWords {
  explicit PlainWords(const KPanel&) {}
  void begin_group(int64_t) {}
};

struct Bf16Words : PlainWords {
  using PlainWords::PlainWords;
  static __m512i row(__m512i codes) { return codes; }
};

// bf16 words that a WordTable has looked up: none is -0.
struct LookedUpWords : PlainWords {
  using PlainWords::PlainWords;
  static constexpr bool kNoNegativeZero = true;
};

// fp16 has to be rounded to bf16: only where one instruction does it.
#if defined(__AVX512BF16__)
struct Fp16Words : PlainWords {
  using PlainWords::PlainWords;
  static __m512i row(__m512i codes) {
    const __m512 low = _mm512_cvtph_ps(_mm512_castsi512_si256(codes));
    const __m512 high = _mm512_cvtph_ps(_mm512_extracti64x4_epi64(codes, 1));
    return std::bit_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low));
  }
};
#endif

}  // namespace
}  // namespace tilepress
