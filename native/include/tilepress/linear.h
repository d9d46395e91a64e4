// Operations of linear/: activations times packed weights.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tilepress/pack.h"
#include "tilepress/quantize.h"

namespace tilepress {

// A block's weights over a K-panel of inputs: what one call of a linear kernel multiplies with. K-panels begin at a
// multiple of kKPanelStep inputs, so at a tile.
inline constexpr int kKPanelStep = 64;

struct KPanel {
  const Format* format;
  int operand_bits;
  int64_t first, inputs;    // inputs of the row before the K-panel, and in it
  int64_t tiles;            // of the K-panel, the last perhaps not full
  const uint8_t* packed;    // dense: the K-panel's first tile; sparse: the block's first code
  const uint8_t* mask;      // of the K-panel's first tile; null when dense
  int64_t consumed, limit;  // sparse: codes of the block before the K-panel, and in all of it
  const void* scales;       // of the block's first group, as are zeros
  const uint8_t* zeros;     // whole numbers where there is a mask
};

// Sums of products, as integers, may be started at the bits of this float, whose last place is 1/16, times a power of
// two. For products sixteen times too large.
inline constexpr float kSumStart = 0x1.8p19f;

// Numbers from -255 to 255 of four rows as five lines of bytes, of which a matrix is multiplied with one after the
// other: row r is line r and three times line r + 1.
inline constexpr int kNineBitRows = 4, kNineBitLines = kNineBitRows + 1, kNineBitFactor = 3;

// Integer activations over a K-panel. Weights are integers too: codes or, beside zero points, code * 2^zero_shift -
// byte. Where there are several limbs a segment has at most 128 inputs, so that its dot product fits 32 bits: 65535 *
// 255 * 128 is below 2^31.
struct IntegerActivations {
  const int8_t* limbs[kMaxLimbs];  // [batch, stride] each, zero from the row's end to the end of its last tile
  int limb_count, limb_bits;       // kLimbBits, or 0: addends
  bool nine_bit_lines;             // one limb of kNineBitLines lines for every kNineBitRows rows
  int bits;                        // of a value, its sign among them
  int64_t stride, batch;
  int64_t segment;      // inputs that share every scale: a multiple of 16, or more than the K-panel has
  const int32_t* sums;  // [batch, segment_stride]: sum of x over each segment
  const float* units;   // [batch, segment_stride]: what 1 stands for in each segment's dot product; null: 1
  const float* starts;  // [batch, segment_stride, 4]: kSumStart times the unit, four times over; null but for NEON rows
  int64_t segment_stride;
  bool one_unit = false;             // all units are weight_unit
  const float* unit_sums = nullptr;  // [batch, segment_stride]: sums times units; null but for tiles with zero points
};

// Float activations over a K-panel, in the type of the kernel: float, or bf16 as uint16_t.
template <class FloatType>
struct FloatActivations {
  const FloatType* x;  // [batch, stride], zero from the row's end to the end of its last tile
  int64_t stride, batch;
};

// Activations over a K-panel as fp16, groups of kHalfGroup inputs in units of their own.
inline constexpr int kHalfGroup = 32;
struct HalfActivations {
  const uint16_t* x;  // [batch, stride], zero from the row's end to the end of its last tile
  int64_t stride, batch;
  const float* units;  // [batch, unit_stride]: what 1 stands for in a product with weights' fp16
  int64_t unit_stride;
};

// out [batch, 16] += x · Wᵀ over the K-panel; of integers, the K-panel's own sum first and then one addition. `scratch`
// holds k_panel_scratch_bytes. Returns how many codes of a sparse block it took (0 when dense), or -1, with `out`
// meaningless, where its mask asks for more than the block has. Up to kSlackBytes past the block's own bytes may be
// read.
TILEPRESS_OPERATION(linear_f32_i8_int, int64_t(const KPanel&, const IntegerActivations&, float* out, uint8_t* scratch));
TILEPRESS_OPERATION(linear_f32_f32_any,
                    int64_t(const KPanel&, const FloatActivations<float>&, float* out, uint8_t* scratch));
TILEPRESS_OPERATION(linear_f32_bf16_any,
                    int64_t(const KPanel&, const FloatActivations<uint16_t>&, float* out, uint8_t* scratch));
TILEPRESS_OPERATION(linear_f32_f16_any, int64_t(const KPanel&, const HalfActivations&, float* out, uint8_t* scratch));

// For many rows weights are decoded once: to float32 [inputs, 16], multiplied with their scales, with room for a whole
// tile's inputs at the end,
TILEPRESS_OPERATION(decode_f32_any, int64_t(const KPanel&, float* weights, uint8_t* scratch));

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
TILEPRESS_OPERATION(decode_bf16_any, int64_t(const KPanel&, bool scaled, uint16_t* tiles, uint8_t* scratch));
TILEPRESS_OPERATION(decode_i8_int, int64_t(const KPanel&, int8_t* tiles, uint8_t* scratch));

// Activations come in tiles too: 16 rows (a row panel) of 64 bytes, 1 KiB, tile after tile of a row panel and row panel
// after row panel.
inline constexpr int kTileRows = 16;

// The same of bf16, or rows as they were given, of whole tiles.
struct TiledActivations {
  const uint16_t* first;
  int64_t row_panel_stride, tile_stride, row_stride;  // values from one to the next
  int64_t rows;                                       // a row panel may lack some
};

// What tile kernels multiply over a K-panel: tiles of one or two blocks with row panels of activations. `out` [16 * row
// panels, 16] has room for the rows that a row panel lacks; the second block's may be null, with its tiles.
struct Bf16Product {
  const uint16_t* tiles[2];
  const float* scales[2];  // 16 each; null: 1
  int64_t count;           // tiles of a block in the K-panel
  TiledActivations x;      // in row panels, from the K-panel's first tile on
  float* out[2];
};
TILEPRESS_OPERATION(matmul_f32_bf16_bf16, void(const Bf16Product&));

// For one or two row panels: any number of blocks, one or two at a time, decoded tile by tile while the tiles before
// are multiplied. Fills in the codes that each block took, as linear kernels return them. Returns false, having done
// nothing, for weights that it does not take. `scratch` holds blocks_scratch_bytes.
struct Bf16Blocks {
  const KPanel* blocks;
  int64_t count;
  bool in_pairs;
  bool scaled;          // in their tiles
  const float* scales;  // [count, 16]; null: 1
  int64_t tiles;        // of a block
  TiledActivations x;
  float* out;  // [count, 16 * row panels, 16]
};
TILEPRESS_OPERATION(linear_f32_bf16_any_tiles, bool(const Bf16Blocks&, int64_t* consumed, uint8_t* scratch));

// Tiles of one block that lack their scales, times row panels of activations: group after group,
//   sums [16 * row panels, 16] = fma(product, scale, sums)
// A group is what shares every scale, whole tiles of it; the K-panel's last may be cut short. Integers that bf16 holds,
// times a power of two, are multiplied exactly, as long as their sums over a group stay below 2^24.
struct GroupProduct {
  const KPanel* weights;
  const uint16_t* tiles;
  int64_t count;       // of tiles in the K-panel
  int64_t group;       // inputs
  TiledActivations x;  // from the K-panel's first tile on
  float* sums;
};
// `scratch` has room for the K-panel's scales as floats.
TILEPRESS_OPERATION(matmul_f32_bf16_bf16_groups, void(const GroupProduct&, uint8_t* scratch));
// The same for one row panel, with tiles decoded as they are needed; `tiles` of the product are not used. Fills in the
// codes that the block took, as linear kernels return them. Returns false, having done nothing, for weights that it
// does not take. `scratch` holds group_scratch_bytes.
TILEPRESS_OPERATION(linear_f32_bf16_any_groups, bool(const GroupProduct&, int64_t* consumed, uint8_t* scratch));

struct IntegerProduct {
  const KPanel* weights[2];
  const int8_t* tiles[2];
  IntegerActivations
      x;  // but its limbs are tiles; of two limbs each row panel is two, one after the other; never three
  int64_t row_panel_stride;
  int64_t k_panel;  // inputs, whole segments of them, that are summed up apart before they are added to `out`
  float* out[2];
};
TILEPRESS_OPERATION(matmul_f32_i8_i8, void(const IntegerProduct&));

// The same for at most two row panels, or one of two limbs, and any number of blocks, decoded tile by tile. `out`
// [count, 16
// * row panels, 16]. `scratch` holds blocks_scratch_bytes.
struct IntegerBlocks {
  const KPanel* blocks;
  int64_t count;
  IntegerActivations x;
  int64_t row_panel_stride, k_panel;
  float* out;
};
TILEPRESS_OPERATION(linear_f32_i8_int_tiles, void(const IntegerBlocks&, int64_t* consumed, uint8_t* scratch));

// Whether tiles can be multiplied segment by segment.
constexpr bool tiles_take(int64_t segment) { return segment % tile_inputs(8) == 0 || segment == tile_inputs(8) / 2; }

// Of some blocks of sums [rows, 16], `block_stride` floats apart, the results of their first `neurons`, sums * scale +
// bias, in `type`: the nearest, as torch converts. From one row's results to the next it is `stride` bytes.
struct BlockResults {
  const float* accumulators;
  int64_t block_stride, rows;
  const float* scales;  // [rows]; null: 1
  const float* bias;    // [neurons]; null: none
  int64_t neurons;
  FloatType type;
  uint8_t* y;
  int64_t stride;
};
TILEPRESS_OPERATION(epilogue_fp_f32, void(const BlockResults&));

// Working memory of a linear kernel: a K-panel's non-zeros in order, its decoded operands, its scales, and room for a
// vector after each. K-panels and groups are such that a K-panel of `tiles` tiles has at most four groups a tile, and
// one more.
constexpr int64_t k_panel_scratch_bytes(int64_t tiles) { return 3 * (tiles + 1) * kMaxTileBytes; }

// That of LinearBf16Blocks and LinearInt8Blocks: what a linear kernel needs, and the tiles of two blocks.
constexpr int64_t blocks_scratch_bytes(int64_t tiles) { return 3 * k_panel_scratch_bytes(tiles); }

// That of LinearGroups: the K-panel's scales, what a linear kernel needs, and its tiles of bf16.
constexpr int64_t group_scratch_bytes(int64_t tiles) {
  return (tiles + 1) * kMaxTileBytes + k_panel_scratch_bytes(tiles) + 2 * tiles * kMaxTileBytes;
}

}  // namespace tilepress
