// Decoders of packed integers to int8 tiles, one tile after another:
//   Decoder(weights, scratch); next(tile); consumed()
//   kHigh: operands are 4-bit codes in the upper half of a byte; kHasZeroPoints
#pragma once

#include "linear/int8_epilogue_avx512.h"
#include "linear/nonzeros_avx512.h"

namespace tilepress {
namespace {

// operand = (code ^ flip) - offset, as in to_operands.
struct ToOperand {
  explicit ToOperand(const Format& format) {
    const int sign = 1 << (format.bits - 1);
    const bool flips = format.zero_point ? format.bits == 8 : format.bits < 8;
    flip = _mm512_set1_epi8(static_cast<char>(flips ? sign : 0));
    offset = _mm512_set1_epi8(static_cast<char>(flips && !format.zero_point ? sign : 0));
  }

  __m512i operator()(__m512i codes) const { return _mm512_sub_epi8(_mm512_xor_si512(codes, flip), offset); }

  __m512i flip, offset;
};

// 4-bit codes are cheaper to decode to the upper half of a byte, 16 times too large. Unsigned ones are then in steps of
// zero points; for signed ones the scale is divided by 16, which is exact in float32 for bf16 and fp16 scales, whose
// last place is at least 2^-137.
inline bool uses_high_nibbles(const KPanel& weights) {
  return weights.format->bits == 4 && !weights.zeros && has_half_scales(*weights.format);
}

// Sparse codes, expanded straight into the tile. `zero_points`: dropped weights get the zero point of their group.
template <class Nonzeros, bool zero_points>
class SparseTiles {
 public:
  static constexpr bool kHigh = std::is_same_v<Nonzeros, NonzerosAhead<HighNibbleFields>>;
  static constexpr HasZeroPoints kHasZeroPoints = zero_points ? HasZeroPoints::always : HasZeroPoints::never;

  SparseTiles(const KPanel& weights, uint8_t* scratch)
      : weights_(weights), to_operand_(*weights.format), nonzeros_(weights, scratch), mask_(weights.mask) {
    const int64_t size = weights.format->group;
    group_ = weights.first / size;
    last_ = (weights.first + weights.inputs - 1) / size;
    left_ = (group_ + 1) * size - weights.first;
    begin_group();
  }

  [[gnu::noinline]] void next(int8_t* tile) {
    Nonzeros nonzeros = nonzeros_;  // local copies: byte stores may alias members
    const ToOperand to_operand = to_operand_;
    const uint8_t* mask = mask_;
    for (int row = 0; row < kTileRows;
         row += kRows, mask += kRows * kMaskBytes<uint8_t>, tile += kRows * kVectorBytes) {
      if constexpr (zero_points) {
        if (!left_) ++group_, left_ = weights_.format->group, begin_group();
        left_ -= kRows * kRowInputs;
      }
      nonzeros.template next<kRows, zero_points>(
          mask, fill_, [&](int line, __m512i codes) __attribute__((always_inline)) {
            constexpr bool kNoConversion = kHigh || (Nonzeros::kBits == 8 && !zero_points);
            _mm512_storeu_si512(tile + line * kVectorBytes, kNoConversion ? codes : to_operand(codes));
          });
    }
    prefetch_ahead(mask);
    prefetch_ahead(mask + kVectorBytes);
    nonzeros_ = nonzeros;
    mask_ = mask;
  }

  int64_t consumed() const { return nonzeros_.consumed(); }

 private:
  static constexpr int kRowInputs = 4, kRows = 4;  // groups are whole multiples of kRows rows

  // Padding of the last tile belongs to the last group.
  void begin_group() {
    if (group_ >= last_) group_ = last_, left_ = std::numeric_limits<int64_t>::max();
    fill_ = kHigh ? zero_bytes(weights_, group_) : dropped(weights_, group_);
  }

  const KPanel& weights_;
  ToOperand to_operand_;
  Nonzeros nonzeros_;
  const uint8_t* mask_;
  int64_t group_, last_, left_;
  __m512i fill_;
};

// Dense 4-bit codes.
class NibbleTiles {
 public:
  static constexpr bool kHigh = false;
  static constexpr HasZeroPoints kHasZeroPoints = HasZeroPoints::sometimes;

  NibbleTiles(const KPanel& weights, uint8_t*) : to_operand_(*weights.format), at_(weights.packed) {}

  [[gnu::noinline]] void next(int8_t* tile) {
    const __m512i low = _mm512_set1_epi8(15);
    const ToOperand to_operand = to_operand_;  // local copies: byte stores may alias members
    const uint8_t* at = at_;
    for (int row = 0; row < kTileRows; row += 2, at += kVectorBytes, tile += 2 * kVectorBytes) {
      const __m512i pairs = _mm512_loadu_si512(at);
      prefetch_ahead(at);
      _mm512_storeu_si512(tile, to_operand(_mm512_and_si512(pairs, low)));
      _mm512_storeu_si512(tile + kVectorBytes, to_operand(_mm512_and_si512(_mm512_srli_epi16(pairs, 4), low)));
    }
    at_ = at;
  }

  int64_t consumed() const { return 0; }

 private:
  ToOperand to_operand_;
  const uint8_t* at_;
};

// Dense 4-bit codes, in the upper half of a byte.
class HighNibbles {
 public:
  static constexpr bool kHigh = true;
  static constexpr HasZeroPoints kHasZeroPoints = HasZeroPoints::never;

  HighNibbles(const KPanel& weights, uint8_t*) : at_(weights.packed) {}

  [[gnu::always_inline]] void next(int8_t* tile) {
    const __m512i high = _mm512_set1_epi8(static_cast<char>(0xf0)), to_high = _mm512_set1_epi64(kToHigh);
    const uint8_t* at = at_;
    for (int row = 0; row < kTileRows; row += 2, at += kVectorBytes, tile += 2 * kVectorBytes) {
      const __m512i pairs = _mm512_loadu_si512(at);
      prefetch_ahead(at);
      _mm512_storeu_si512(tile, _mm512_gf2p8affine_epi64_epi8(pairs, to_high, 0));
      _mm512_storeu_si512(tile + kVectorBytes, _mm512_and_si512(pairs, high));
    }
    at_ = at;
  }

  int64_t consumed() const { return 0; }

 private:
  // Bit matrix of a shift left by four, for gf2p8affineqb.
  static constexpr int64_t kToHigh = 0x01020408;

  const uint8_t* at_;
};

// Dense codes of other widths.
class FieldTiles {
 public:
  static constexpr bool kHigh = false;
  static constexpr HasZeroPoints kHasZeroPoints = HasZeroPoints::sometimes;

  FieldTiles(const KPanel& weights, uint8_t*) : weights_(weights), at_(weights.packed) {}

  [[gnu::noinline]] void next(int8_t* tile) {
    auto* codes = reinterpret_cast<uint8_t*>(tile);
    const int bits = weights_.format->bits;
    for (int line = 0; line < tile_code_bytes(bits, 8); line += kVectorBytes) prefetch_ahead(at_ + line);
    unpack_fields(bits, tile_codes(8) / kLineCodes, at_, codes);
    to_operands(*weights_.format, codes, tile_codes(8));
    at_ += tile_code_bytes(bits, 8);
  }

  int64_t consumed() const { return 0; }

 private:
  const KPanel& weights_;
  const uint8_t* at_;
};

// Calls work<Decoder>() with a decoder that supports the weights.
template <class Work>
void with_int8_decoder(const KPanel& weights, const Work& work) {
  if (weights.mask) {
    return with_nonzero_bytes(weights, [&]<class Nonzeros>() {
      if (weights.zeros) return work.template operator()<SparseTiles<Nonzeros, true>>();
      work.template operator()<SparseTiles<Nonzeros, false>>();
    });
  }
  const int bits = weights.format->bits;
  if (bits == 4) return work.template operator()<NibbleTiles>();
  work.template operator()<FieldTiles>();
}

}  // namespace
}  // namespace tilepress
