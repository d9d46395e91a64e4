// Packed weights to vectors of bf16 pairs, as `vdpbf16ps` and AMX take them: one vector holds two inputs of 16 neurons.
// In a nameless namespace for the reason that pack_block.h gives.
//
// A Source gives codes, 64 at a time: four inputs of 16 neurons, in the order of the tile. Values turn them into bf16
// by look-ups of words, or of bytes, low and high halves apart, where 64 entries cost one instruction and 128 one a
// little longer. A Source that is sparse fills what was dropped with a code that stands for zero.
#pragma once

#include "kernels/decode_bf16_any/decode_span.h"
#include "kernels/kept_codes_avx512.h"

namespace tilepress {
namespace {

constexpr int kLineInputs = 4, kStepLines = 2, kStepInputs = kLineInputs * kStepLines;

struct RowPair {
  __m512i first, second;  // inputs 0 and 1, inputs 2 and 3, in the order of bf16_place
};

// The bytes of 64 codes in the order in which interleaving two halves (`vpunpck`, within 128 bits) gives whole rows.
struct InterleavingOrder {
  constexpr explicit InterleavingOrder(int operand_bits) : places() {
    for (int i = 0; i < 64; ++i) {
      const int second = i % 16 / 8, place = i / 16 * 8 + i % 8;  // which row, and where in it: 2 * neuron + input
      const int in_bytes = 4 * (place / 2) + 2 * (place % 2) + second;  // bf16_place
      places[i] = static_cast<uint8_t>(operand_bits == 8 ? in_bytes : 32 * second + place);
    }
  }

  alignas(64) uint8_t places[64];
};
constexpr InterleavingOrder kOrderOf8(8), kOrderOf16(16);

inline __m512i interleaving_order(int operand_bits) {
  return _mm512_load_si512(operand_bits == 8 ? kOrderOf8.places : kOrderOf16.places);
}

// Low and high bytes of the bf16 of 64 codes from `first` on.
struct ByteTable {
  ByteTable(const Format& format, int first) {
    const auto* from = reinterpret_cast<const __m512i*>(format.bf16s + first);
    const __m512i one = _mm512_loadu_si512(from), two = _mm512_loadu_si512(from + 1);
    low = _mm512_inserti64x4(_mm512_castsi256_si512(_mm512_cvtepi16_epi8(one)), _mm512_cvtepi16_epi8(two), 1);
    const __m512i upper_one = _mm512_srli_epi16(one, 8), upper_two = _mm512_srli_epi16(two, 8);
    high =
        _mm512_inserti64x4(_mm512_castsi256_si512(_mm512_cvtepi16_epi8(upper_one)), _mm512_cvtepi16_epi8(upper_two), 1);
  }

  // The first `count` entries again and again.
  void repeat(int count) {
    alignas(64) uint8_t places[64];
    for (int i = 0; i < 64; ++i) places[i] = static_cast<uint8_t>(i & (count - 1));
    const __m512i again = _mm512_load_si512(places);
    low = _mm512_permutexvar_epi8(again, low);
    high = _mm512_permutexvar_epi8(again, high);
  }

  __m512i low, high;
};

// A code that stands for zero; -1 where there is none.
inline int zero_code(const Format& format) {
  for (int code = 0; code < 1 << format.bits; ++code) {
    if (format.values[code] == 0.0f) return code;
  }
  return -1;
}

class Values {
 public:
  explicit Values(const SpanWeights& weights) : order_(interleaving_order(weights.operand_bits)) {}
  void begin_group(int64_t) {}
  __m512i dropped() const { return dropped_; }

 protected:
  static RowPair interleave(__m512i low, __m512i high) {
    return {_mm512_unpacklo_epi8(low, high), _mm512_unpackhi_epi8(low, high)};
  }
  __m512i order_, dropped_ = _mm512_setzero_si512();
};

// Codes of at most six bits; whatever lies above them in a byte is ignored where all codes are kept.
class Small : public Values {
 public:
  static bool takes(const SpanWeights& weights) {
    const Format& format = *weights.format;
    return format.bits <= 6 && !weights.zeros && (!weights.mask || format.bits < 6 || zero_code(format) >= 0);
  }

  explicit Small(const SpanWeights& weights) : Values(weights) {
    const int bits = weights.format->bits;
    const bool room = weights.mask && bits < 6;  // past the last code, where values are 0
    ByteTable table(*weights.format, 0);
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

// Codes of at most five bits in 8-bit tiles, looked up as words, 32 at a time, in place: only the lowest five bits of a
// word count, and of its two codes the upper one is shifted down. The fifth bit is not of a 4-bit code, and one that
// the table repeats itself over, unless it means a dropped code.
class SmallWords {
 public:
  static bool takes(const SpanWeights& weights) {
    const Format& format = *weights.format;
    const bool fits = format.bits < 5 || (format.bits == 5 && (!weights.mask || zero_code(format) >= 0));
    return fits && !weights.zeros && weights.operand_bits == 8;
  }

  explicit SmallWords(const SpanWeights& weights) {
    const int bits = weights.format->bits;
    const bool room = weights.mask && bits < 5;  // past the last code, where values are 0
    table_ = _mm512_loadu_si512(weights.format->bf16s);
    if (bits == 4 && !weights.mask) table_ = _mm512_broadcast_i64x4(_mm512_castsi512_si256(table_));
    if (weights.mask) dropped_ = _mm512_set1_epi8(static_cast<char>(room ? 1 << bits : zero_code(*weights.format)));
  }

  void begin_group(int64_t) {}
  __m512i dropped() const { return dropped_; }

  RowPair rows(__m512i codes) const {
    return {_mm512_permutexvar_epi16(codes, table_), _mm512_permutexvar_epi16(_mm512_srli_epi16(codes, 8), table_)};
  }

 private:
  __m512i table_, dropped_ = _mm512_setzero_si512();
};

// Unsigned codes of at most four bits, looked up as floats, of which a lane's lowest four bits choose one, less the
// zero point of the lane's neuron: eight bits and a sign, which bf16 holds.
class ZeroPoints {
 public:
  static bool takes(const SpanWeights& weights) {
    return weights.zeros && weights.format->bits <= 4 && weights.operand_bits == 8;
  }

  explicit ZeroPoints(const SpanWeights& weights)
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
    return {row(codes, _mm512_srli_epi32(codes, 16)), row(_mm512_srli_epi32(codes, 8), _mm512_srli_epi32(codes, 24))};
  }

 private:
  [[gnu::always_inline]] __m512i value(__m512i codes) const {
    return _mm512_castps_si512(_mm512_sub_ps(_mm512_permutexvar_ps(codes, table_), zero_));
  }

  // Two inputs of each neuron, as bf16: the upper halves of floats whose lower halves are empty.
  [[gnu::always_inline]] __m512i row(__m512i first, __m512i second) const {
    return _mm512_or_si512(_mm512_srli_epi32(value(first), 16), value(second));
  }

  const uint8_t* zeros_;
  __m512 table_, step_, zero_ = _mm512_setzero_ps();
  __m128i shift_;
  __m512i dropped_ = _mm512_setzero_si512();
};

// Eight-bit codes whose highest bit is the sign, as minifloats have it: a table of 128 magnitudes.
class Signed : public Values {
 public:
  static bool takes(const SpanWeights& weights) {
    const Format& format = *weights.format;
    return format.bits == 8 && format.rounding == Rounding::minifloat && format.values[0] == 0.0f;
  }

  explicit Signed(const SpanWeights& weights) : Values(weights) {
    for (int i = 0; i < 2; ++i) {
      const ByteTable table(*weights.format, 64 * i);
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
class Large : public Values {
 public:
  static bool takes(const SpanWeights& weights) {
    const Format& format = *weights.format;
    return format.bits >= 7 && format.bits <= 8 && !weights.zeros && (!weights.mask || zero_code(format) >= 0);
  }

  explicit Large(const SpanWeights& weights) : Values(weights) {
    for (int i = 0; i < 4; ++i) {
      const ByteTable table(*weights.format, 64 * i);
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

// The sixteen scales of a group. `type` is known where this is inlined.
template <ScaleType type>
[[gnu::always_inline]] inline __m512 scales_of(const void* scales, int64_t group) {
  const int64_t at = group * kBlockNeurons;
  if constexpr (type == ScaleType::none) return _mm512_set1_ps(1.0f);
  if constexpr (type == ScaleType::fp32) return _mm512_loadu_ps(static_cast<const float*>(scales) + at);
  if constexpr (type == ScaleType::bf16 || type == ScaleType::fp16) {
    const auto* from = reinterpret_cast<const __m256i*>(static_cast<const uint16_t*>(scales) + at);
    const __m256i halves = _mm256_loadu_si256(from);
    if constexpr (type == ScaleType::fp16) return _mm512_cvtph_ps(halves);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
  }
  // E8M0: exponents, but for the least one, which is a subnormal number, and the largest, which is none.
  const auto* from = reinterpret_cast<const __m128i*>(static_cast<const uint8_t*>(scales) + at);
  const __m512i codes = _mm512_cvtepu8_epi32(_mm_loadu_si128(from)), powers = _mm512_slli_epi32(codes, 23);
  const __m512i least = _mm512_max_epu32(powers, _mm512_set1_epi32(1 << 22));
  const __mmask16 none = _mm512_cmpeq_epi32_mask(codes, _mm512_set1_epi32(255));
  return _mm512_castsi512_ps(_mm512_mask_mov_epi32(least, none, _mm512_set1_epi32(0x7fc00000)));
}

// Calls work(group, begin, end) for each group of the span's first `inputs` inputs; the last takes what is left.
template <class Work>
[[gnu::always_inline]] inline void for_groups(const SpanWeights& weights, int64_t inputs, const Work& work) {
  const int64_t size = weights.format->group;
  int64_t group = weights.first / size, end = (group + 1) * size - weights.first;
  for (int64_t begin = 0; begin < inputs; begin = end, end += size, ++group) {
    if (end >= weights.inputs) end = inputs;
    work(group, begin, end);
  }
}

// Calls work<type>() with the type of the format's scales.
template <class Work>
void with_scale_type(const Format& format, const Work& work) {
  switch (format.scale) {
    case ScaleType::none:
      return work.template operator()<ScaleType::none>();
    case ScaleType::e8m0:
      return work.template operator()<ScaleType::e8m0>();
    case ScaleType::bf16:
      return work.template operator()<ScaleType::bf16>();
    case ScaleType::fp16:
      return work.template operator()<ScaleType::fp16>();
    case ScaleType::fp32:
      return work.template operator()<ScaleType::fp32>();
  }
}

// Sources: next(values, rows) gives the four rows of the next eight inputs; taken(), the codes of a sparse span so far,
// -1 where its block has not so many.

// Dense 4-bit codes, two lines in a vector. Only what Values::rows ignores or masks stands above the codes.
class Dense4 {
 public:
  static bool takes(const SpanWeights& weights) { return !weights.mask && weights.format->bits == 4; }
  Dense4(const SpanWeights& weights, uint8_t*) : at_(weights.packed) {}

  template <class Values>
  [[gnu::always_inline]] void next(const Values& values, RowPair* rows) {
    const __m512i pairs = _mm512_loadu_si512(at_);
    prefetch_ahead(at_);
    rows[0] = values.rows(pairs);
    rows[1] = values.rows(_mm512_srli_epi16(pairs, 4));
    at_ += kVectorBytes;
  }
  int64_t taken() const { return 0; }

 private:
  const uint8_t* at_;
};

// The same in 16-bit tiles, where a word a code is already a row: looked up as words, 32 at a time. Only the lowest
// five bits of a word count, and the fifth, which is not of the code, is one that the table repeats itself over.
class WordTable {
 public:
  static constexpr bool kNoNegativeZero = true;

  explicit WordTable(const SpanWeights& weights) {
    const __m256i once = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(weights.format->bf16s));
    const __m512i table = _mm512_broadcast_i64x4(once);
    table_ = _mm512_maskz_mov_epi16(_mm512_test_epi16_mask(table, _mm512_set1_epi16(0x7fff)), table);
  }
  void begin_group(int64_t) {}
  __m512i row(__m512i words) const { return _mm512_permutexvar_epi16(words, table_); }

 private:
  __m512i table_;
};

// Kept codes become words of bf16 before they are expanded, in 16-bit tiles.

// 4-bit codes. A byte is widened to two words, of which the second has its upper half: as above, what stands above a
// code's four bits does not count.
class NibbleWords {
 public:
  using Code = uint16_t;
  static constexpr int kBits = 4, kStep = 64;

  explicit NibbleWords(const SpanWeights& weights) : table_(weights) {}

  [[gnu::always_inline]] void unpack(const uint8_t* in, uint16_t* out) const {
    for (int half = 0; half < 2; ++half, in += kVectorBytes / 4, out += kVectorBytes / 2) {
      const __m512i pairs = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(in)));
      _mm512_storeu_si512(out, table_.row(_mm512_or_si512(pairs, _mm512_slli_epi32(pairs, 12))));
    }
  }

 private:
  WordTable table_;
};

// Other codes of at most eight bits, by their Values.
template <class Values>
class ValueWords {
 public:
  using Code = uint16_t;
  static constexpr int kBits = 0, kStep = 64;

  explicit ValueWords(const SpanWeights& weights)
      : whole_(weights.format->bits == 8), fields_(weights), values_(weights) {}

  [[gnu::always_inline]] void unpack(const uint8_t* in, uint16_t* out) const {
    const RowPair rows = values_.rows(whole_ ? _mm512_loadu_si512(in) : fields_.line(in));
    _mm512_storeu_si512(out, rows.first);
    _mm512_storeu_si512(out + kVectorBytes / 2, rows.second);
  }

 private:
  bool whole_;
  Fields<0> fields_;
  Values values_;
};

class DenseNibbles {
 public:
  static bool takes(const SpanWeights& weights) {
    return !weights.mask && weights.format->bits == 4 && weights.operand_bits == 16 && !weights.zeros;
  }
  DenseNibbles(const SpanWeights& weights, uint8_t*) : at_(weights.packed) {}

  [[gnu::always_inline]] void next(const WordTable& values, RowPair* rows) {
    const auto* halves = reinterpret_cast<const __m256i*>(at_);
    const __m512i first = _mm512_cvtepu8_epi16(_mm256_loadu_si256(halves));
    const __m512i second = _mm512_cvtepu8_epi16(_mm256_loadu_si256(halves + 1));
    prefetch_ahead(at_);
    rows[0] = {values.row(first), values.row(second)};
    rows[1] = {values.row(_mm512_srli_epi16(first, 4)), values.row(_mm512_srli_epi16(second, 4))};
    at_ += kVectorBytes;
  }
  int64_t taken() const { return 0; }

 private:
  const uint8_t* at_;
};

// Dense codes, a byte each: 8-bit ones where they lie, others unpacked beforehand.
class DenseBytes {
 public:
  static bool takes(const SpanWeights& weights) { return !weights.mask && weights.format->bits <= 8; }
  DenseBytes(const SpanWeights& weights, uint8_t* scratch)
      : at_(weights.format->bits == 8 ? weights.packed : scratch) {}

  template <class Values>
  [[gnu::always_inline]] void next(const Values& values, RowPair* rows) {
    for (int line = 0; line < kStepLines; ++line, at_ += kLineCodes) {
      rows[line] = values.rows(_mm512_loadu_si512(at_));
      prefetch_ahead(at_);
    }
  }
  int64_t taken() const { return 0; }

 private:
  const uint8_t* at_;
};

// Sparse codes, looked up where they are: in 8-bit tiles.
template <class Kept>
class SparseCodes {
 public:
  SparseCodes(const SpanWeights& weights, uint8_t* scratch) : kept_(weights, scratch), mask_(weights.mask) {}

  template <class Values>
  [[gnu::always_inline]] void next(const Values& values, RowPair* rows) {
    prefetch_ahead(mask_);
    const auto look_up = [&](int line, __m512i codes)
                             __attribute__((always_inline)) { rows[line] = values.rows(codes); };
    kept_.template next<kStepLines, true>(mask_, values.dropped(), look_up);
    mask_ += kStepLines * kMaskBytes<uint8_t>;
  }
  int64_t taken() const { return kept_.taken(); }

 private:
  Kept kept_;
  const uint8_t* mask_;
};

// Words of bf16, which are rows already: in 16-bit tiles.
template <class Kept>
class SparseRows {
 public:
  SparseRows(const SpanWeights& weights, uint8_t* scratch) : kept_(weights, scratch), mask_(weights.mask) {}

  template <class Values>
  [[gnu::always_inline]] void next(const Values&, RowPair* rows) {
    prefetch_ahead(mask_);
    const auto place = [&](int row, __m512i words) __attribute__((always_inline)) {
      (row % 2 ? rows[row / 2].second : rows[row / 2].first) = words;
    };
    kept_.template next<2 * kStepLines, false>(mask_, _mm512_setzero_si512(), place);
    mask_ += 2 * kStepLines * kMaskBytes<uint16_t>;
  }
  int64_t taken() const { return kept_.taken(); }

 private:
  Kept kept_;
  const uint8_t* mask_;
};

struct Words {
  explicit Words(const SpanWeights&) {}
  void begin_group(int64_t) {}
};

struct Bf16Words : Words {
  using Words::Words;
  static bool takes(const SpanWeights& weights) { return weights.format->rounding == Rounding::bf16; }
  static __m512i row(__m512i codes) { return codes; }
};

// None of them is -0.
struct LookedUpWords : Words {
  using Words::Words;
  static constexpr bool kNoNegativeZero = true;
};

struct Fp16Words : Words {
  using Words::Words;
  static bool takes(const SpanWeights& weights) { return weights.format->rounding == Rounding::fp16; }
  static __m512i row(__m512i codes) {
    const __m512 low = _mm512_cvtph_ps(_mm512_castsi512_si256(codes));
    const __m512 high = _mm512_cvtph_ps(_mm512_extracti64x4_epi64(codes, 1));
    return std::bit_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low));
  }
};

class DenseWords {
 public:
  static bool takes(const SpanWeights& weights) { return !weights.mask && weights.format->bits == 16; }
  DenseWords(const SpanWeights& weights, uint8_t*) : at_(weights.packed) {}

  template <class Values>
  [[gnu::always_inline]] void next(const Values& values, RowPair* rows) {
    for (int line = 0; line < kStepLines; ++line, at_ += 2 * kVectorBytes) {
      prefetch_ahead(at_);
      prefetch_ahead(at_ + kVectorBytes);
      rows[line] = {values.row(_mm512_loadu_si512(at_)), values.row(_mm512_loadu_si512(at_ + kVectorBytes))};
    }
  }
  int64_t taken() const { return 0; }

 private:
  const uint8_t* at_;
};

// Halves as words of bf16.
struct HalfWords {
  using Code = uint16_t;
  static constexpr int kBits = 16, kStep = kVectorBytes / 2;

  explicit HalfWords(const SpanWeights&) {}
  [[gnu::always_inline]] static void unpack(const uint8_t* in, uint16_t* out) {
    _mm512_storeu_si512(out, Fp16Words::row(_mm512_loadu_si512(in)));
  }
};

// Calls work<Source, Values>() with the first pair that takes the weights; false where none does. These are for codes
// of at most six bits.
template <class Work>
bool with_small_rows(const SpanWeights& weights, const Work& work) {
  const auto values = [&]<class Source>() {
    if (SmallWords::takes(weights)) return work.template operator()<Source, SmallWords>(), true;
    if (Small::takes(weights)) return work.template operator()<Source, Small>(), true;
    if (ZeroPoints::takes(weights)) return work.template operator()<Source, ZeroPoints>(), true;
    return false;
  };
  const int bits = weights.format->bits;
  if (bits > 6) return false;
  if (weights.mask && weights.operand_bits == 16 && !weights.zeros) {
    if (bits == 4) return work.template operator()<SparseRows<KeptAhead<NibbleWords>>, LookedUpWords>(), true;
    return work.template operator()<SparseRows<KeptAhead<ValueWords<Small>>>, Bf16Words>(), true;
  }
  if (weights.mask && bits == 4) return values.template operator()<SparseCodes<KeptAhead<Fields<4>>>>();
  if (weights.mask) return values.template operator()<SparseCodes<KeptAhead<Fields<0>>>>();
  if (DenseNibbles::takes(weights)) return work.template operator()<DenseNibbles, WordTable>(), true;
  if (Dense4::takes(weights)) return values.template operator()<Dense4>();
  return values.template operator()<DenseBytes>();
}

// The same for any. `ahead`: sparse codes of seven and eight bits are looked up before they are expanded, which is
// better for rows that are multiplied at once, and worse for tiles of half the weights.
template <bool ahead, class Work>
bool with_rows(const SpanWeights& weights, const Work& work) {
  const auto values = [&]<class Source>() {
    if (Signed::takes(weights)) return work.template operator()<Source, Signed>(), true;
    if (Large::takes(weights)) return work.template operator()<Source, Large>(), true;
    return false;
  };
  if (DenseWords::takes(weights)) {
    if (Bf16Words::takes(weights)) return work.template operator()<DenseWords, Bf16Words>(), true;
    return work.template operator()<DenseWords, Fp16Words>(), true;
  }
  if (with_small_rows(weights, work)) return true;
  if (DenseBytes::takes(weights)) return values.template operator()<DenseBytes>();
  if (weights.format->bits == 16) {
    if (Bf16Words::takes(weights)) return work.template operator()<SparseRows<KeptWhole<uint16_t>>, Bf16Words>(), true;
    return work.template operator()<SparseRows<KeptAhead<HalfWords>>, Bf16Words>(), true;
  }
  if constexpr (ahead) {
    if (weights.operand_bits == 16 && !weights.zeros) {
      if (!Signed::takes(weights))
        return work.template operator()<SparseRows<KeptAhead<ValueWords<Large>>>, Bf16Words>(), true;
      return work.template operator()<SparseRows<KeptAhead<ValueWords<Signed>>>, Bf16Words>(), true;
    }
  }
  if (weights.format->bits == 8) return values.template operator()<SparseCodes<KeptWhole<uint8_t>>>();
  return values.template operator()<SparseCodes<KeptAhead<Fields<0>>>>();
}

// Dense codes of other than 4, 8 and 16 bits to where DenseBytes looks for them.
inline void unpack_dense_bytes(const SpanWeights& weights, uint8_t* scratch) {
  const int bits = weights.format->bits, count = tile_codes(weights.operand_bits);
  if (weights.mask || bits == 4 || bits >= 8) return;
  for (int64_t tile = 0; tile < weights.tiles; ++tile) {
    const uint8_t* packed = weights.packed + tile * tile_code_bytes(bits, weights.operand_bits);
    unpack_fields(bits, count / kLineCodes, packed, scratch + tile * count);
  }
}

}  // namespace
}  // namespace tilepress
