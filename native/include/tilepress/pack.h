// Operations of pack/: codes to tiles and bit planes, and back. Byte layouts are in layout.h; all memory is the
// caller's.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tilepress/format.h"
#include "tilepress/kernel.h"

namespace tilepress {

// --- Tiles -----------------------------------------------------------------------------------------------------------

// One block: kBlockNeurons rows of `tiles` tiles.
struct BlockShape {
  int bits;          // of a code
  int operand_bits;  // 8 or 16
  int64_t tiles;
};

constexpr int64_t block_codes(const BlockShape& shape) { return shape.tiles * tile_codes(shape.operand_bits); }

// Bytes of a code that is not packed.
constexpr int code_bytes(int bits) { return bits == 16 ? 2 : 1; }

// Bytes of a decoded tile, of 8-bit or 16-bit operands.
inline constexpr int kMaxTileBytes = kBlockNeurons * kVectorBytes;

// Codes [16, tiles · tile_inputs] to the packed bytes of a block. Sparse if `keep` (0 or 1 for each code) is not null:
// then `mask` is written, and only kept codes are packed.
TILEPRESS_OPERATION(pack_tiles_codes,
                    void(const BlockShape&, const void* codes, const uint8_t* keep, uint8_t* packed, uint8_t* mask));

// The inverse. Sparse if `mask` is not null: then `keep` is written, dropped codes are 0, `scratch` has
// unpack_scratch_bytes, and up to kSlackBytes past the block's last byte may be read.
TILEPRESS_OPERATION(unpack_codes_tiles, void(const BlockShape&, const uint8_t* packed, const uint8_t* mask, void* codes,
                                             uint8_t* keep, uint8_t* scratch));

// A block's non-zeros, and one vector more.
constexpr int64_t unpack_scratch_bytes(const BlockShape& shape) {
  return block_codes(shape) * code_bytes(shape.bits) + kSlackBytes;
}

// --- Bit planes ------------------------------------------------------------------------------------------------------

// A group is kPlaneValues values in block floating point, with a mantissa of 1 to kMaxMantissa bits: a 64-bit word of
// signs, then one word for each bit of the magnitudes, most significant first; bit i belongs to value i. The group's
// exponent, an fp16 exponent field, is a byte in `fields`.
inline constexpr int kPlaneValues = 64;
inline constexpr int kPlaneBytes = kPlaneValues / 8;
inline constexpr int kMaxMantissa = 16;
inline constexpr int kMaxField = 30;

// values [groups, 64] of `type` to planes [groups, 1 + mantissa, 8 bytes] and fields [groups]. A field above kMaxField
// means that the group has an infinity, a NaN, or a value that fp16 rounds to infinity; its planes are undefined.
TILEPRESS_OPERATION(pack_planes_fp, void(FloatType type, const void* values, int64_t groups, int mantissa,
                                         uint8_t* planes, uint8_t* fields));

// The inverse, rounded to the nearest fp16.
TILEPRESS_OPERATION(unpack_f16_planes,
                    void(const uint8_t* planes, const uint8_t* fields, int64_t groups, int mantissa, uint16_t* halves));

}  // namespace tilepress
