// Operations of linear/: activations times packed weights.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tilepress/pack.h"
#include "tilepress/quantize.h"

namespace tilepress {

// A block's weights over a span of inputs: what one call of a linear kernel multiplies with. Spans begin at a multiple
// of kSpanStep inputs, so at a tile.
inline constexpr int kSpanStep = 64;

struct SpanWeights {
  const Format* format;
  int operand_bits;
  int64_t first, inputs;  // inputs of the row before the span, and in it
  int64_t tiles;          // of the span, the last perhaps not full
  const uint8_t* packed;  // dense: the span's first tile; sparse: the block's first code
  const uint8_t* mask;    // of the span's first tile; null when dense
  int64_t taken, limit;   // sparse: codes of the block before the span, and in all of it
  const void* scales;     // of the block's first group, as are zeros
  const uint8_t* zeros;   // whole numbers where there is a mask
};

// Sums of products, as integers, may be started at the bits of this float, whose last place is 1/16, times a power of
// two. For products sixteen times too large.
inline constexpr float kSumStart = 0x1.8p19f;

// Numbers from -255 to 255 of four rows as five lines of bytes, of which a matrix is multiplied with one after the
// other: row r is line r and three times line r + 1.
inline constexpr int kNineBitRows = 4, kNineBitLines = kNineBitRows + 1, kNineBitFactor = 3;

// Integer activations over a span. Weights are integers too: codes or, beside zero points, code * 2^zero_shift - byte.
// Where there are several digits a segment has at most 128 inputs, so that its dot product fits 32 bits: 65535 * 255 *
// 128 is below 2^31.
struct IntegerActivations {
  const int8_t* digits[kMostDigits];  // [batch, stride] each, zero from the row's end to the end of its last tile
  int digit_count, digit_bits;        // kDigitBits, or 0: addends
  bool fives;                         // one digit of kNineBitLines lines for every kNineBitRows rows
  int bits;                           // of a value, its sign among them
  int64_t stride, batch;
  int64_t segment;      // inputs that share every scale: a multiple of 16, or more than the span has
  const int32_t* sums;  // [batch, segment_stride]: sum of x over each segment
  const float* units;   // [batch, segment_stride]: what 1 stands for in each segment's dot product; null: 1
  const float* starts;  // [batch, segment_stride, 4]: kSumStart times the unit, four times over; null but for NEON rows
  int64_t segment_stride;
  bool one_unit = false;             // all units are weight_unit
  const float* unit_sums = nullptr;  // [batch, segment_stride]: sums times units; null but for tiles with zero points
};

// Float activations over a span, in the type of the kernel: float, or bf16 as uint16_t.
template <class Real>
struct FloatActivations {
  const Real* x;  // [batch, stride], zero from the row's end to the end of its last tile
  int64_t stride, batch;
};

// Activations over a span as fp16, groups of kHalfGroup inputs in units of their own.
inline constexpr int kHalfGroup = 32;
struct HalfActivations {
  const uint16_t* x;  // [batch, stride], zero from the row's end to the end of its last tile
  int64_t stride, batch;
  const float* units;  // [batch, unit_stride]: what 1 stands for in a product with weights' fp16
  int64_t unit_stride;
};

// out [batch, 16] += x · Wᵀ over the span; of integers, the span's own sum first and then one addition. `scratch` holds
// span_scratch_bytes. Returns how many codes of a sparse block it took (0 when dense), or -1, with `out` meaningless,
// where its mask asks for more than the block has. Up to kSlackBytes past the block's own bytes may be read.
TILEPRESS_OPERATION(linear_f32_i8_int,
                    int64_t(const SpanWeights&, const IntegerActivations&, float* out, uint8_t* scratch));
TILEPRESS_OPERATION(linear_f32_f32_any,
                    int64_t(const SpanWeights&, const FloatActivations<float>&, float* out, uint8_t* scratch));
TILEPRESS_OPERATION(linear_f32_bf16_any,
                    int64_t(const SpanWeights&, const FloatActivations<uint16_t>&, float* out, uint8_t* scratch));
TILEPRESS_OPERATION(linear_f32_f16_any,
                    int64_t(const SpanWeights&, const HalfActivations&, float* out, uint8_t* scratch));

// For many rows weights are decoded once: to float32 [inputs, 16], multiplied with their scales, with room for a whole
// tile's inputs at the end,
TILEPRESS_OPERATION(decode_f32_any, int64_t(const SpanWeights&, float* weights, uint8_t* scratch));

// and of one or two blocks, of which the second's may be null, out [batch, 16] += x · weights;
struct F32Product {
  const float* weights[2];
  int64_t inputs;
  FloatActivations<float> x;
  float* out[2];
};
TILEPRESS_OPERATION(matmul_f32_f32_f32, void(const F32Product&));

// or to tiles of operands as matrix units take them: 1 KiB each, in VNNI order, 32 inputs of bf16 or 64 of int8.
// `scaled` tiles hold weights, others lack the scale. All that decode return as linear kernels do.
TILEPRESS_OPERATION(decode_bf16_any, int64_t(const SpanWeights&, bool scaled, uint16_t* tiles, uint8_t* scratch));
TILEPRESS_OPERATION(decode_i8_int, int64_t(const SpanWeights&, int8_t* tiles, uint8_t* scratch));

// Activations come in tiles too: 16 rows (a lot) of 64 bytes, 1 KiB, tile after tile of a lot and lot after lot.
inline constexpr int kTileRows = 16;

// The same of bf16, or rows as they were given, of whole tiles.
struct TiledActivations {
  const uint16_t* first;
  int64_t lot_stride, tile_stride, row_stride;  // values from one to the next
  int64_t rows;                                 // a lot may lack some
};

// What tile kernels multiply over a span: tiles of one or two blocks with lots of activations. `out` [16 * lots, 16]
// has room for the rows that a lot lacks; the second block's may be null, with its tiles.
struct Bf16Product {
  const uint16_t* tiles[2];
  const float* scales[2];  // 16 each; null: 1
  int64_t count;           // tiles of a block in the span
  TiledActivations x;      // in lots, from the span's first tile on
  float* out[2];
};
TILEPRESS_OPERATION(matmul_f32_bf16_bf16, void(const Bf16Product&));

// For one or two lots: any number of blocks, one or two at a time, decoded tile by tile while the tiles before are
// multiplied. Fills in the codes that each block took, as linear kernels return them. Returns false, having done
// nothing, for weights that it does not take. `scratch` holds blocks_scratch_bytes.
struct Bf16Blocks {
  const SpanWeights* blocks;
  int64_t count;
  bool in_pairs;
  bool scaled;          // in their tiles
  const float* scales;  // [count, 16]; null: 1
  int64_t tiles;        // of a block
  TiledActivations x;
  float* out;  // [count, 16 * lots, 16]
};
TILEPRESS_OPERATION(linear_f32_bf16_any_tiles, bool(const Bf16Blocks&, int64_t* taken, uint8_t* scratch));

// Tiles of one block that lack their scales, times lots of activations: group after group,
//   sums [16 * lots, 16] = fma(product, scale, sums)
// A group is what shares every scale, whole tiles of it; the span's last may be cut short. Integers that bf16 holds,
// times a power of two, are multiplied exactly, as long as their sums over a group stay below 2^24.
struct GroupProduct {
  const SpanWeights* weights;
  const uint16_t* tiles;
  int64_t count;       // of tiles in the span
  int64_t group;       // inputs
  TiledActivations x;  // from the span's first tile on
  float* sums;
};
// `scratch` has room for the span's scales as floats.
TILEPRESS_OPERATION(matmul_f32_bf16_bf16_groups, void(const GroupProduct&, uint8_t* scratch));
// The same for one lot, with tiles decoded as they are needed; `tiles` of the product are not used. Fills in the codes
// that the block took, as linear kernels return them. Returns false, having done nothing, for weights that it does not
// take. `scratch` holds group_scratch_bytes.
TILEPRESS_OPERATION(linear_f32_bf16_any_groups, bool(const GroupProduct&, int64_t* taken, uint8_t* scratch));

struct IntegerProduct {
  const SpanWeights* weights[2];
  const int8_t* tiles[2];
  IntegerActivations x;  // but its digits are tiles; of two digits each lot is two, one after the other; never three
  int64_t lot_stride;
  int64_t span;  // inputs, whole segments of them, that are summed up apart before they are added to `out`
  float* out[2];
};
TILEPRESS_OPERATION(matmul_f32_i8_i8, void(const IntegerProduct&));

// The same for at most two lots, or one of two digits, and any number of blocks, decoded tile by tile. `out` [count, 16
// * lots, 16]. `scratch` holds blocks_scratch_bytes.
struct IntegerBlocks {
  const SpanWeights* blocks;
  int64_t count;
  IntegerActivations x;
  int64_t lot_stride, span;
  float* out;
};
TILEPRESS_OPERATION(linear_f32_i8_int_tiles, void(const IntegerBlocks&, int64_t* taken, uint8_t* scratch));

// Whether tiles can be multiplied segment by segment.
constexpr bool tiles_take(int64_t segment) { return segment % tile_inputs(8) == 0 || segment == tile_inputs(8) / 2; }

// Of some blocks of sums [rows, 16], `block_stride` floats apart, the results of their first `neurons`, sums * scale +
// bias, in `type`: the nearest, as torch converts. From one row's results to the next it is `stride` bytes.
struct BlockResults {
  const float* totals;
  int64_t block_stride, rows;
  const float* scales;  // [rows]; null: 1
  const float* bias;    // [neurons]; null: none
  int64_t neurons;
  Real type;
  uint8_t* y;
  int64_t stride;
};
TILEPRESS_OPERATION(epilogue_fp_f32, void(const BlockResults&));

// Working memory of a linear kernel: a span's kept codes in order, its decoded operands, its scales, and room for a
// vector after each. Spans and groups are such that a span of `tiles` tiles has at most four groups a tile, and one
// more.
constexpr int64_t span_scratch_bytes(int64_t tiles) { return 3 * (tiles + 1) * kMaxTileBytes; }

// That of LinearBf16Blocks and LinearInt8Blocks: what a linear kernel needs, and the tiles of two blocks.
constexpr int64_t blocks_scratch_bytes(int64_t tiles) { return 3 * span_scratch_bytes(tiles); }

// That of LinearGroups: the span's scales, what a linear kernel needs, and its tiles of bf16.
constexpr int64_t group_scratch_bytes(int64_t tiles) {
  return (tiles + 1) * kMaxTileBytes + span_scratch_bytes(tiles) + 2 * tiles * kMaxTileBytes;
}

}  // namespace tilepress
