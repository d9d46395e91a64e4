// Decoders of packed weights to bf16 tiles, one tile after another:
//   Decoder(weights, scratch); next(tile); consumed()
#pragma once

#include "linear/bf16_rows_avx512.h"

namespace tilepress {
namespace {

// Applies scales to a row by multiplication, and rounds to bf16; ties away from zero, which is cheaper than to even and
// has the same error bound.
template <ScaleType type>
class RowProducts {
 public:
  explicit RowProducts(const KPanel& weights) : scales_(weights.scales) {}

  void begin_group(int64_t group) { scale_ = scales_of<type>(scales_, group); }

  __m512i operator()(__m512i row) const {
    constexpr int kAndOr = 0xea;  // (a & b) | c
    const __m512i upper = _mm512_set1_epi32(static_cast<int>(0xffff0000)), half = _mm512_set1_epi32(0x8000);
    const __m512 even = _mm512_mul_ps(_mm512_castsi512_ps(_mm512_slli_epi32(row, 16)), scale_);
    const __m512 odd = _mm512_mul_ps(_mm512_castsi512_ps(_mm512_and_si512(row, upper)), scale_);
    const __m512i low = _mm512_srli_epi32(_mm512_add_epi32(_mm512_castps_si512(even), half), 16);
    return _mm512_ternarylogic_epi32(_mm512_add_epi32(_mm512_castps_si512(odd), half), upper, low, kAndOr);
  }

 private:
  const void* scales_;
  __m512 scale_ = _mm512_setzero_ps();
};

// Applies the scales of a group to a row. Powers of two and no scales are specialised below.
template <ScaleType type>
class RowScales : public RowProducts<type> {
 public:
  using RowProducts<type>::RowProducts;
};

template <>
class RowScales<ScaleType::none> {
 public:
  explicit RowScales(const KPanel&) {}
  void begin_group(int64_t) {}
  __m512i operator()(__m512i row) const { return row; }
};

// Smallest and largest bf16 exponent fields of the format's normal values, and whether it has subnormal ones.
struct ValueExponents {
  explicit ValueExponents(const Format& format) {
    for (int code = 0; code < 1 << format.bits; ++code) {
      const int exponent = format.bf16s[code] >> 7 & 0xff;
      if (exponent) lowest = least(lowest, exponent), highest = most(highest, exponent);
      subnormal |= !exponent && (format.bf16s[code] & 0x7f);
    }
  }

  int lowest = 254, highest = 1;
  bool subnormal = false;
};

// Powers of two are added to exponents, unless a value would leave bf16's range. If no scale of the group is above 1
// and no code stands for -0, that is one saturating unsigned subtraction, which leaves zeros alone.
template <>
class RowScales<ScaleType::e8m0> {
 public:
  explicit RowScales(const KPanel& weights) : scales_(weights.scales), general_(weights) {
    const ValueExponents exponents(*weights.format);
    subnormal_ = exponents.subnormal;
    min_ = _mm512_set1_epi32(128 - exponents.lowest);
    max_ = _mm512_set1_epi32(381 - exponents.highest);
  }

  void begin_group(int64_t group) {
    const auto* from = reinterpret_cast<const __m128i*>(static_cast<const uint8_t*>(scales_) + group * kBlockNeurons);
    const __m512i codes = _mm512_cvtepu8_epi32(_mm_loadu_si128(from));
    in_range_ = !subnormal_ && !_mm512_cmplt_epi32_mask(codes, min_) && !_mm512_cmpgt_epi32_mask(codes, max_);
    if (!in_range_) general_.begin_group(group);
    const __m512i one = _mm512_set1_epi32(127);
    subtracts_ = in_range_ && !_mm512_cmpgt_epi32_mask(codes, one);
    const __m512i step = _mm512_slli_epi32(subtracts_ ? _mm512_sub_epi32(one, codes) : _mm512_sub_epi32(codes, one), 7);
    steps_ = _mm512_mask_mov_epi16(_mm512_slli_epi32(step, 16), 0x55555555, step);
  }

  // Whether subtract() may be used for rows without -0.
  bool can_subtract() const { return subtracts_; }
  __m512i subtract(__m512i row) const { return _mm512_subs_epu16(row, steps_); }

  __m512i operator()(__m512i row) const {
    if (!in_range_) [[unlikely]]
      return general_(row);
    const __mmask32 not_zero = _mm512_test_epi16_mask(row, _mm512_set1_epi16(0x7fff));
    return subtracts_ ? _mm512_mask_sub_epi16(row, not_zero, row, steps_)
                      : _mm512_mask_add_epi16(row, not_zero, row, steps_);
  }

 private:
  const void* scales_;
  RowProducts<ScaleType::e8m0> general_;
  bool subnormal_ = false, in_range_ = true, subtracts_ = false;
  __m512i min_, max_, steps_ = _mm512_setzero_si512();
};

// Decodes with a Source and its Values (bf16_rows_avx512.h), and applies scales.
template <class Source, class Values, ScaleType type>
class TileDecoder {
 public:
  TileDecoder(const KPanel& weights, uint8_t* scratch)
      : source_(weights, scratch), values_(weights), scales_(weights), group_size_(weights.format->group) {
    group_ = weights.first / group_size_;
    last_ = (weights.first + weights.inputs - 1) / group_size_;
    left_ = (group_ + 1) * group_size_ - weights.first;
    begin_group();
  }

  // The next 32 inputs.
  [[gnu::noinline]] void next(uint16_t* tile) {
    if (!left_) next_group();
    if (left_ >= tile_inputs(16)) [[likely]] {
      left_ -= tile_inputs(16);
      const RowScales<type> scales = scales_;  // a local copy: stores may alias members
      if constexpr (type == ScaleType::e8m0 && requires { Values::kNoNegativeZero; }) {
        if (scales.can_subtract()) [[likely]] {
          return next_rows(
              tile_inputs(16), [&](__m512i row) __attribute__((always_inline)) { return scales.subtract(row); }, tile);
        }
      }
      return next_rows(tile_inputs(16), scales, tile);
    }
    for (int step = 0; step < tile_inputs(16); step += kStepInputs, tile += kStepRows * kVectorBytes / 2) {
      if (!left_) next_group();
      left_ -= kStepInputs;
      next_rows(kStepInputs, scales_, tile);
    }
  }

  int64_t consumed() const { return source_.consumed(); }

 private:
  static constexpr int kStepRows = 2 * kStepLines;

  // Rows of the next inputs of one group.
  template <class Scale>
  [[gnu::always_inline]] void next_rows(int inputs, const Scale& scale, uint16_t* rows) {
    Source source = source_;  // local copies, as above
    const Values values = values_;
    for (int at = 0; at < inputs; at += kStepInputs) {
      RowPair pairs[kStepLines];
      source.next(values, pairs);
      for (const RowPair& pair : pairs) {
        _mm512_store_si512(rows, scale(pair.first));
        _mm512_store_si512(rows + kVectorBytes / 2, scale(pair.second));
        rows += kVectorBytes;
      }
    }
    source_ = source;
  }

  void next_group() {
    ++group_;
    left_ = group_size_;
    begin_group();
  }

  // Padding of the last tile belongs to the last group.
  void begin_group() {
    if (group_ >= last_) group_ = last_, left_ = std::numeric_limits<int64_t>::max();
    values_.begin_group(group_);
    scales_.begin_group(group_);
  }

  Source source_;
  Values values_;
  RowScales<type> scales_;
  int64_t group_size_, group_, last_, left_;
};

// For vpshufb, of 16 bytes repeated in each 128 bits: a neuron's byte, widened, to both words of its 32-bit lane.
struct IntoBothWords {
  constexpr IntoBothWords() : places() {
    for (int i = 0; i < 64; ++i) places[i] = static_cast<uint8_t>(i % 2 ? 0x80 : i / 4);
  }
  alignas(64) uint8_t places[64];
};
constexpr IntoBothWords kIntoBothWords;

// Dense 4-bit codes of 16-bit tiles with one E8M0 scale per tile (mxfp4). Assumes that no scale is above 1, and none so
// small that a value would leave bf16's range: applying scales is one unsigned subtraction then. assumption_held()
// tells at the end; if not, the K-panel must be decoded again by TileDecoder.
class SpeculativeNibbles {
 public:
  static bool accepts(const KPanel& weights) {
    const Format& format = *weights.format;
    return DenseNibbles::accepts(weights) && format.scale == ScaleType::e8m0 && format.group == tile_inputs(16) &&
           !ValueExponents(format).subnormal;
  }

  SpeculativeNibbles(const KPanel& weights, uint8_t* scratch)
      : source_(weights, scratch),
        values_(weights),
        scales_(static_cast<const uint8_t*>(weights.scales) + weights.first / tile_inputs(16) * kBlockNeurons),
        max_step_(static_cast<uint16_t>((ValueExponents(*weights.format).lowest - 1) << 7)) {}

  [[gnu::always_inline]] void next(uint16_t* tile) {
    const __m512i codes = _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(scales_)));
    const __m512i words = _mm512_shuffle_epi8(codes, _mm512_load_si512(kIntoBothWords.places));
    const __m512i steps = _mm512_sub_epi16(_mm512_set1_epi16(127 << 7), _mm512_slli_epi16(words, 7));
    max_ = _mm512_max_epu16(max_, steps);  // a scale above 1 gives a step below 0: a large unsigned number
    scales_ += kBlockNeurons;
#pragma GCC unroll 4
    for (int at = 0; at < tile_inputs(16); at += kStepInputs) {
      RowPair pairs[kStepLines];
      source_.next(values_, pairs);
      for (const RowPair& pair : pairs) {
        _mm512_store_si512(tile, _mm512_subs_epu16(pair.first, steps));
        _mm512_store_si512(tile + kVectorBytes / 2, _mm512_subs_epu16(pair.second, steps));
        tile += kVectorBytes;
      }
    }
  }

  bool assumption_held() const {
    return !_mm512_cmpgt_epu16_mask(max_, _mm512_set1_epi16(static_cast<int16_t>(max_step_)));
  }
  int64_t consumed() const { return 0; }

 private:
  DenseNibbles source_;
  WordTable values_;
  const uint8_t* scales_;
  uint16_t max_step_;
  __m512i max_ = _mm512_setzero_si512();
};

// Calls work<Decoder>() with a decoder that supports the weights; false if there is none. `scaled`: scales are applied.
template <class Work>
bool with_tile_decoder(const KPanel& weights, bool scaled, const Work& work) {
  return with_source<false>(weights, [&]<class Source, class Values>() {
    if (!scaled) return work.template operator()<TileDecoder<Source, Values, ScaleType::none>>();
    with_scale_type(*weights.format,
                    [&]<ScaleType type>() { work.template operator()<TileDecoder<Source, Values, type>>(); });
  });
}

}  // namespace
}  // namespace tilepress
