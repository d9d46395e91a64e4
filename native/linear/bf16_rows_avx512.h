// Packed weights to rows of bf16, eight inputs at a time. A Source reads codes, and its Values (bf16_values_avx512.h)
// convert them. A Source provides
//   accepts(weights)     dense ones
//   next(values, rows)   the four rows of the next eight inputs, as two RowPairs
//   consumed()           non-zeros so far; -1 if the block has fewer; 0 if dense
#pragma once

#include "linear/bf16_values_avx512.h"
#include "linear/nonzeros_avx512.h"
#include "linear/scales_avx512.h"

namespace tilepress {
namespace {

// Calls work(group, begin, end) for each group of the first `inputs` inputs; padding belongs to the last group.
template <class Work>
[[gnu::always_inline]] inline void for_groups(const KPanel& weights, int64_t inputs, const Work& work) {
  const int64_t size = weights.format->group;
  int64_t group = weights.first / size, end = (group + 1) * size - weights.first;
  for (int64_t begin = 0; begin < inputs; begin = end, end += size, ++group) {
    if (end >= weights.inputs) end = inputs;
    work(group, begin, end);
  }
}

// Dense 4-bit codes, two lines per vector. Values must ignore the bits above a code.
class Dense4 {
 public:
  static bool accepts(const KPanel& weights) { return !weights.mask && weights.format->bits == 4; }
  Dense4(const KPanel& weights, uint8_t*) : at_(weights.packed) {}

  template <class Values>
  [[gnu::always_inline]] void next(const Values& values, RowPair* rows) {
    const __m512i pairs = _mm512_loadu_si512(at_);
    prefetch_ahead(at_);
    if constexpr (requires { Values::to_words(pairs); }) {
      const RowPair words = Values::to_words(pairs);
      rows[0] = values.look_up(words);
      rows[1] = values.look_up({_mm512_srli_epi16(words.first, 4), _mm512_srli_epi16(words.second, 4)});
    } else {
      rows[0] = values.rows(pairs);
      rows[1] = values.rows(_mm512_srli_epi16(pairs, 4));
    }
    at_ += kVectorBytes;
  }
  int64_t consumed() const { return 0; }

 private:
  const uint8_t* at_;
};

// The same for 16-bit tiles.
class DenseNibbles {
 public:
  static bool accepts(const KPanel& weights) {
    return !weights.mask && weights.format->bits == 4 && weights.operand_bits == 16 && !weights.zeros;
  }
  DenseNibbles(const KPanel& weights, uint8_t*) : at_(weights.packed) {}

  [[gnu::always_inline]] void next(const WordTable& values, RowPair* rows) {
    const auto* halves = reinterpret_cast<const __m256i*>(at_);
    const __m512i first = _mm512_cvtepu8_epi16(_mm256_loadu_si256(halves));
    const __m512i second = _mm512_cvtepu8_epi16(_mm256_loadu_si256(halves + 1));
    prefetch_ahead(at_);
    rows[0] = {values.row(first), values.row(second)};
    rows[1] = {values.row(_mm512_srli_epi16(first, 4)), values.row(_mm512_srli_epi16(second, 4))};
    at_ += kVectorBytes;
  }
  int64_t consumed() const { return 0; }

 private:
  const uint8_t* at_;
};

// Dense codes, one byte each: 8-bit codes in place, others after unpack_dense_bytes.
class DenseBytes {
 public:
  static bool accepts(const KPanel& weights) { return !weights.mask && weights.format->bits <= 8; }
  DenseBytes(const KPanel& weights, uint8_t* scratch) : at_(weights.format->bits == 8 ? weights.packed : scratch) {}

  template <class Values>
  [[gnu::always_inline]] void next(const Values& values, RowPair* rows) {
    for (int line = 0; line < kStepLines; ++line, at_ += kLineCodes) {
      rows[line] = values.rows(_mm512_loadu_si512(at_));
      prefetch_ahead(at_);
    }
  }
  int64_t consumed() const { return 0; }

 private:
  const uint8_t* at_;
};

// Codes for NonzerosAhead (nonzeros_avx512.h) that convert non-zeros to bf16 words before they are expanded, for 16-bit
// tiles.

// 4-bit codes. A byte is widened to two words, the second with its upper half; a WordTable ignores the bits above a
// code.
class NibbleWords {
 public:
  using Code = uint16_t;
  static constexpr int kStep = 64;

  explicit NibbleWords(const KPanel& weights) : table_(weights) {}

  [[gnu::always_inline]] void unpack(const uint8_t* in, uint16_t* out) const {
    for (int half = 0; half < 2; ++half, in += kVectorBytes / 4, out += kVectorBytes / 2) {
      const __m512i pairs = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(in)));
      _mm512_storeu_si512(out, table_.row(_mm512_or_si512(pairs, _mm512_slli_epi32(pairs, 12))));
    }
  }

 private:
  WordTable table_;
};

// Other codes of at most eight bits, converted by Values.
template <class Values>
class ValueWords {
 public:
  using Code = uint16_t;
  static constexpr int kStep = 64;

  explicit ValueWords(const KPanel& weights) : bytes_(weights.format->bits == 8), fields_(weights), values_(weights) {}

  [[gnu::always_inline]] void unpack(const uint8_t* in, uint16_t* out) const {
    const RowPair rows = values_.rows(bytes_ ? _mm512_loadu_si512(in) : fields_.line(in));
    _mm512_storeu_si512(out, rows.first);
    _mm512_storeu_si512(out + kVectorBytes / 2, rows.second);
  }

 private:
  bool bytes_;
  Fields<0> fields_;
  Values values_;
};

#if defined(__AVX512BF16__)
// fp16.
struct Fp16ToWords {
  using Code = uint16_t;
  static constexpr int kStep = kVectorBytes / 2;

  explicit Fp16ToWords(const KPanel&) {}
  [[gnu::always_inline]] static void unpack(const uint8_t* in, uint16_t* out) {
    _mm512_storeu_si512(out, Fp16Words::row(_mm512_loadu_si512(in)));
  }
};
#endif

// Sparse codes: expanded, then looked up.
template <class Nonzeros>
class SparseCodes {
 public:
  SparseCodes(const KPanel& weights, uint8_t* scratch) : nonzeros_(weights, scratch), mask_(weights.mask) {}

  template <class Values>
  [[gnu::always_inline]] void next(const Values& values, RowPair* rows) {
    prefetch_ahead(mask_);
    const auto look_up = [&](int line, __m512i codes)
                             __attribute__((always_inline)) { rows[line] = values.rows(codes); };
    nonzeros_.template next<kStepLines, true>(mask_, values.dropped(), look_up);
    mask_ += kStepLines * kMaskBytes<uint8_t>;
  }
  int64_t consumed() const { return nonzeros_.consumed(); }

 private:
  Nonzeros nonzeros_;
  const uint8_t* mask_;
};

// Sparse bf16 words, which are rows once expanded; 16-bit tiles.
template <class Nonzeros>
class SparseRows {
 public:
  SparseRows(const KPanel& weights, uint8_t* scratch) : nonzeros_(weights, scratch), mask_(weights.mask) {}

  template <class Values>
  [[gnu::always_inline]] void next(const Values&, RowPair* rows) {
    prefetch_ahead(mask_);
    const auto place = [&](int row, __m512i words) __attribute__((always_inline)) {
      (row % 2 ? rows[row / 2].second : rows[row / 2].first) = words;
    };
    nonzeros_.template next<2 * kStepLines, false>(mask_, _mm512_setzero_si512(), place);
    mask_ += 2 * kStepLines * kMaskBytes<uint16_t>;
  }
  int64_t consumed() const { return nonzeros_.consumed(); }

 private:
  Nonzeros nonzeros_;
  const uint8_t* mask_;
};

// Dense 16-bit codes.
class DenseWords {
 public:
  static bool accepts(const KPanel& weights) { return !weights.mask && weights.format->bits == 16; }
  DenseWords(const KPanel& weights, uint8_t*) : at_(weights.packed) {}

  template <class Values>
  [[gnu::always_inline]] void next(const Values& values, RowPair* rows) {
    for (int line = 0; line < kStepLines; ++line, at_ += 2 * kVectorBytes) {
      prefetch_ahead(at_);
      prefetch_ahead(at_ + kVectorBytes);
      rows[line] = {values.row(_mm512_loadu_si512(at_)), values.row(_mm512_loadu_si512(at_ + kVectorBytes))};
    }
  }
  int64_t consumed() const { return 0; }

 private:
  const uint8_t* at_;
};

// Calls work<Source, Values>() with the first pair that supports the weights; false if none does. This one: codes of at
// most six bits.
template <class Work>
bool with_small_source(const KPanel& weights, const Work& work) {
  const auto values = [&]<class Source>() {
    if (SmallWords::accepts(weights)) return work.template operator()<Source, SmallWords>(), true;
    if (SmallCodes::accepts(weights)) return work.template operator()<Source, SmallCodes>(), true;
    if (ZeroPoints::accepts(weights)) return work.template operator()<Source, ZeroPoints>(), true;
    return false;
  };
  const int bits = weights.format->bits;
  if (bits > 6) return false;
  if (weights.mask && weights.operand_bits == 16 && !weights.zeros) {
    if (bits == 4) return work.template operator()<SparseRows<NonzerosAhead<NibbleWords>>, LookedUpWords>(), true;
    return work.template operator()<SparseRows<NonzerosAhead<ValueWords<SmallCodes>>>, Bf16Words>(), true;
  }
  if (weights.mask && bits == 4) return values.template operator()<SparseCodes<NonzerosAhead<Fields<4>>>>();
  if (weights.mask) return values.template operator()<SparseCodes<NonzerosAhead<Fields<0>>>>();
  if (DenseNibbles::accepts(weights)) return work.template operator()<DenseNibbles, WordTable>(), true;
  if (Dense4::accepts(weights)) return values.template operator()<Dense4>();
  return values.template operator()<DenseBytes>();
}

// The same for fp16.
template <class Work>
bool with_fp16_source([[maybe_unused]] const KPanel& weights, [[maybe_unused]] const Work& work) {
#if defined(__AVX512BF16__)
  if (DenseWords::accepts(weights)) return work.template operator()<DenseWords, Fp16Words>(), true;
  return work.template operator()<SparseRows<NonzerosAhead<Fp16ToWords>>, Bf16Words>(), true;
#else
  return false;
#endif
}

// The same for all weights. `ahead`: look up sparse codes of seven and eight bits before they are expanded, which is
// faster for rows that are multiplied at once, but slower for tiles at a density of 50 %.
template <bool ahead, class Work>
bool with_source(const KPanel& weights, const Work& work) {
  const auto values = [&]<class Source>() {
    if (SignedCodes::accepts(weights)) return work.template operator()<Source, SignedCodes>(), true;
    if (LargeCodes::accepts(weights)) return work.template operator()<Source, LargeCodes>(), true;
    return false;
  };
  if (weights.format->rounding == Rounding::fp16) return with_fp16_source(weights, work);
  if (DenseWords::accepts(weights)) return work.template operator()<DenseWords, Bf16Words>(), true;
  if (with_small_source(weights, work)) return true;
  if (DenseBytes::accepts(weights)) return values.template operator()<DenseBytes>();
  if (weights.format->bits == 16)
    return work.template operator()<SparseRows<InPlaceNonzeros<uint16_t>>, Bf16Words>(), true;
  if constexpr (ahead) {
    if (weights.operand_bits == 16 && !weights.zeros) {
      if (!SignedCodes::accepts(weights))
        return work.template operator()<SparseRows<NonzerosAhead<ValueWords<LargeCodes>>>, Bf16Words>(), true;
      return work.template operator()<SparseRows<NonzerosAhead<ValueWords<SignedCodes>>>, Bf16Words>(), true;
    }
  }
  if (weights.format->bits == 8) return values.template operator()<SparseCodes<InPlaceNonzeros<uint8_t>>>();
  return values.template operator()<SparseCodes<NonzerosAhead<Fields<0>>>>();
}

// Unpacks dense codes of 1–3 and 5–7 bits to `scratch`, where DenseBytes reads them.
inline void unpack_dense_bytes(const KPanel& weights, uint8_t* scratch) {
  const int bits = weights.format->bits, count = tile_codes(weights.operand_bits);
  if (weights.mask || bits == 4 || bits >= 8) return;
  for (int64_t tile = 0; tile < weights.tiles; ++tile) {
    const uint8_t* packed = weights.packed + tile * tile_code_bytes(bits, weights.operand_bits);
    unpack_fields(bits, count / kLineCodes, packed, scratch + tile * count);
  }
}

}  // namespace
}  // namespace tilepress
