// The tiles of a K-panel, one after another, as codes or as looked-up values. Simd provides what unpack_block.h needs.
#pragma once

#include "pack/unpack_block.h"
#include "simd/simd.h"
#include "tilepress/linear.h"

namespace tilepress {
namespace {

// Layout of a tile, with `pack` consecutive inputs of a neuron in a lane, and what is applied to its values.
template <class CodeType, int inputs_a_lane, bool with_scale, bool with_zero>
struct Kind {
  using Code = CodeType;
  static constexpr int pack = inputs_a_lane;
  static constexpr bool scaled = with_scale, zero_point = with_zero;
  static constexpr int inputs = pack * kBlockNeurons;  // per tile
  static constexpr int codes = inputs * kBlockNeurons;
  static constexpr int code_bits = 8 * sizeof(Code);
  using Lanes = std::conditional_t<pack * sizeof(Code) == 4, Uint32s, Uint16s>;
  using KeepLanes = std::conditional_t<pack == 4, Uint32s, Uint16s>;
};

// A tile's codes, and keep bytes if dropped ones must be masked; otherwise null.
struct Tile {
  const uint8_t *codes, *keep;
};

// Number of non-zeros of the K-panel; -1 if the block has fewer left.
template <class Kind>
int64_t nonzero_codes(const KPanel& k_panel) {
  if (!k_panel.mask) return 0;
  const int64_t count = count_bits(k_panel.mask, k_panel.tiles * Kind::codes / 8);
  return k_panel.consumed + count > k_panel.limit ? -1 : count;
}

// Looks up the 4-bit codes of a dense tile.
template <class Table>
void look_up_lines(const Table& shared_table, int lines, const uint8_t* in, uint16_t* values) {
  const Table table = shared_table;  // a local copy: stores may alias it
  for (int line = 0; line < lines; line += 2, values += 2 * kLineCodes) {
    for (int at = 0; at < kVectorBytes; at += kSimdBytes, in += kSimdBytes) {
      const auto pairs = load<Bytes>(in);
      table.look_up(pairs & 15, values + at);
      table.look_up(pairs >> 4, values + kLineCodes + at);
    }
  }
}

// Reads a K-panel's tiles. If Values has look_up(codes, values), codes are looked up right after they are unpacked.
template <class Simd, class Kind, class Values>
class Tiles {
 public:
  Tiles(const KPanel& k_panel, const Values& values, int64_t nonzeros, uint8_t* scratch)
      : bits_(k_panel.format->bits),
        values_(values),
        tiles_(k_panel.tiles),
        packed_(k_panel.packed),
        mask_(k_panel.mask) {
    if (mask_) unpack_nonzeros(k_panel.consumed, nonzeros, scratch);
  }

  // Non-zeros of the next tile, if the K-panel is sparse.
  const typename Kind::Code* nonzeros() const { return nonzeros_; }

  Tile next() {
    if (mask_) {
      uint8_t* keep = Kind::zero_point || !values_.drops_to_zero() ? keep_ : nullptr;
      nonzeros_ += Simd::expand(nonzeros_, mask_, Kind::codes, codes_, keep);
      mask_ += Kind::codes / 8;
      return {reinterpret_cast<const uint8_t*>(codes_), keep};
    }
    const uint8_t* from = packed_;
    packed_ += Kind::codes / 8 * bits_;
    if (bits_ >= 8) return {from, nullptr};
    if constexpr (kLooksUp) {
      if (bits_ == 4) {
        look_up_lines(values_, Kind::codes / kLineCodes, from, codes_);
      } else {
        unpack_fields(bits_, Kind::codes / kLineCodes, from, keep_);
        look_up(keep_, Kind::codes, codes_);
      }
    } else {
      unpack_fields(bits_, Kind::codes / kLineCodes, from, reinterpret_cast<uint8_t*>(codes_));
    }
    return {reinterpret_cast<const uint8_t*>(codes_), nullptr};
  }

 private:
  using Code = typename Kind::Code;
  static constexpr bool kLooksUp = requires(const Values& values) { values.look_up(Bytes{}, nullptr); };

  // Codes of 8 and 16 bits are read in place. Others need not start at a byte, but every eighth code does.
  void unpack_nonzeros(int64_t consumed, int64_t count, uint8_t* scratch) {
    if (bits_ >= 8) {
      nonzeros_ = reinterpret_cast<const Code*>(packed_) + consumed;
      return;
    }
    uint8_t* codes = scratch + (kLooksUp ? 2 * tiles_ * kMaxTileBytes : 0);
    const int64_t before = consumed % 8;
    Simd::unpack_stream(bits_, packed_ + consumed / 8 * bits_, before + count, codes);
    if constexpr (kLooksUp) look_up(codes, before + count, reinterpret_cast<uint16_t*>(scratch));
    nonzeros_ = reinterpret_cast<const Code*>(scratch) + before;
  }

  void look_up(const uint8_t* codes, int64_t count, uint16_t* values) const {
    const Values table = values_;
    for (int64_t i = 0; i < count; i += kSimdBytes) table.look_up(load<Bytes>(codes + i), values + i);
  }

  int bits_;
  const Values& values_;
  int64_t tiles_;
  const uint8_t *packed_, *mask_;
  const Code* nonzeros_ = nullptr;
  alignas(64) Code codes_[kMaxTileBytes / sizeof(Code)];
  alignas(64) uint8_t keep_[kMaxTileBytes];
};

}  // namespace
}  // namespace tilepress
