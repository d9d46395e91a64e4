// Operations of pack/: codes to tiles and bit planes, and back.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tilepress/format.h"
#include "tilepress/kernel.h"

namespace tilepress {

// Bit planes: groups of kPlaneValues values in block floating point, `mantissa` from 1 to 16. Of each group a word of
// signs, then the magnitudes' bits, a word each, from the most significant on; value i has bit i. And apart from them
// the group's FP16 exponent field, a byte each.
inline constexpr int kPlaneValues = 64;
inline constexpr int kPlaneBytes = kPlaneValues / 8;
inline constexpr int kMaxMantissa = 16;
inline constexpr int kMaxField = 30;

// A field above kMaxField says that the group has an infinity or NaN, or values that fp16 rounds to infinity; what its
// planes hold means nothing then.
TILEPRESS_OPERATION(pack_planes_fp, void(FloatType type, const void* values, int64_t groups, int mantissa,
                                         uint8_t* planes, uint8_t* fields));

// The inverse: the nearest fp16.
TILEPRESS_OPERATION(unpack_f16_planes,
                    void(const uint8_t* planes, const uint8_t* fields, int64_t groups, int mantissa, uint16_t* halves));

struct BlockShape {
  int bits;
  int operand_bits;
  int64_t tiles;
};

// One block of kBlockNeurons rows, each `tiles * tile_inputs` codes, into its bytes. Sparse when `keep` (0/1 bytes,
// shaped as the codes) is not null: then `mask` is written.
TILEPRESS_OPERATION(pack_tiles_codes,
                    void(const BlockShape&, const void* codes, const uint8_t* keep, uint8_t* packed, uint8_t* mask));

// The inverse. Sparse when `mask` is not null: then `keep` is written, dropped codes are 0, `scratch` must hold
// unpack_scratch_bytes, and up to kSlackBytes past the block's own bytes may be read.
TILEPRESS_OPERATION(unpack_codes_tiles, void(const BlockShape&, const uint8_t* packed, const uint8_t* mask, void* codes,
                                             uint8_t* keep, uint8_t* scratch));

constexpr int64_t block_codes(const BlockShape& shape) { return shape.tiles * tile_codes(shape.operand_bits); }

constexpr int code_bytes(int bits) { return bits == 16 ? 2 : 1; }

// A decoded tile, whatever its operands.
inline constexpr int kMaxTileBytes = kBlockNeurons * kVectorBytes;

// A block's non-zeros in order, with room for a vector more.
constexpr int64_t unpack_scratch_bytes(const BlockShape& shape) {
  return block_codes(shape) * code_bytes(shape.bits) + kSlackBytes;
}

}  // namespace tilepress
