// What kernels are: functions over plain pointers. They never allocate, start threads or print; the caller
// brings memory and checks every length. Shapes and byte order are those of layout.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tilepress/layout.h"

namespace tilepress {

enum class Real { f32, bf16, f16 };

// How a ratio weight/scale becomes a code.
enum class Rounding {
  integer,    // nearest even, clamped to low … high, modulo 2^bits
  minifloat,  // a float of at most eight bits, with subnormals
  table,      // nearest of a table's values
  bf16,
  fp16,
};

enum class ScaleType { none, e8m0, bf16, fp16, fp32 };

// A weight format as arithmetic needs it.
struct Format {
  Rounding rounding;
  int bits;
  float low, high;  // integer: the clamp
  float max;        // what a group's largest magnitude maps to
  int emax;         // floor(log2(max))
  bool zero_point;
  ScaleType scale;
  int64_t group;            // inputs a scale serves
  int mantissa_bits;        // minifloat
  int min_exponent;         // minifloat: of its smallest normal number
  int search_steps;         // table: thresholds has 2^steps - 1 entries, ascending, padded with +infinity
  const float* thresholds;  // table: rank = how many are <= x
  const uint8_t* codes;     // table: code of each of 2^steps ranks
  const float* values;      // 2^bits: value of each code; null for 16-bit formats
};

// Scales and zero points of one neuron; entry g lies at g * kBlockNeurons.
struct GroupScales {
  void* scales;
  uint8_t* zeros;
  bool given;  // use the scales (and zeros) that are there instead of setting them
};

// Codes of one row [cols], uint8_t or (16-bit formats) uint16_t.
using QuantizeRow = void(const Format&, const float* row, int64_t cols, GroupScales, void* codes);

// The inverse: float32 values of a row of codes; `keep` is null (all) or one 0/1 byte a code.
using DequantizeRow = void(const Format&, const void* codes, const uint8_t* keep, int64_t cols, GroupScales,
                           float* row);

struct BlockShape {
  int bits;
  int operand_bits;
  int64_t tiles;
};

// One block of kBlockNeurons rows, each `tiles * tile_inputs` codes, into its bytes. Sparse when `keep` (0/1 bytes,
// shaped as the codes) is not null: then `mask` is written.
using PackBlock = void(const BlockShape&, const void* codes, const uint8_t* keep, uint8_t* packed, uint8_t* mask);

// The inverse. Sparse when `mask` is not null: then `keep` is written, dropped codes are 0, `scratch` must hold
// unpack_scratch_bytes, and up to kSlackBytes past the block's own bytes may be read.
using UnpackBlock = void(const BlockShape&, const uint8_t* packed, const uint8_t* mask, void* codes, uint8_t* keep,
                         uint8_t* scratch);

// One block of a linear layer on int8 activations: what is to be multiplied with what.
struct LinearBlock {
  const Format* format;  // an integer one
  int64_t cols, tiles, groups;
  const uint8_t* packed;
  const uint8_t* mask;  // null when dense
  int64_t kept;         // bits set in the mask
  const void* scales;   // of the block's first group
  const uint8_t* zeros;
  const int8_t* x;  // [batch, x_stride], zero past cols up to the end of the last tile
  int64_t x_stride, batch;
  const int32_t* group_sums;  // [batch, groups]: sums of x
};

// out [batch, 16] = x · Wᵀ; `sums` [batch, 16] and `scratch` of unpack_scratch_bytes (when sparse) are working memory.
using LinearInt8Block = void(const LinearBlock&, float* out, int32_t* sums, uint8_t* scratch);

// Reads every byte once and returns a checksum, so that the reads cannot be left out.
using ReadBytes = uint64_t(const uint8_t* data, size_t size);

constexpr int64_t block_codes(const BlockShape& shape) { return shape.tiles * tile_codes(shape.operand_bits); }

constexpr int code_bytes(int bits) { return bits == 16 ? 2 : 1; }

// A decoded tile, whatever its operands.
inline constexpr int kMaxTileBytes = kBlockNeurons * kVectorBytes;

// A block's kept codes in order, with room for a vector more.
constexpr int64_t unpack_scratch_bytes(const BlockShape& shape) {
  return block_codes(shape) * code_bytes(shape.bits) + kSlackBytes;
}

}  // namespace tilepress
