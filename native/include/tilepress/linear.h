// Operations of linear/: activations × packed weights.
//
// Shapes: a block is 16 neurons; a K-panel is a range of its inputs; rows are those of the activations. Results are
// float32 accumulators [rows, 16] per block, to which kernels add; the epilogue turns them into outputs.
//
// All memory belongs to the caller: kernels keep no pointers, and need `scratch` only during the call. The end of this
// file says how many bytes of it each kernel needs.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tilepress/pack.h"
#include "tilepress/quantize.h"

namespace tilepress {

// --- Weights ---------------------------------------------------------------------------------------------------------

// K-panels start at a multiple of this many inputs, so at a tile.
inline constexpr int kKPanelStep = 64;

// Weights of one block over a K-panel.
struct KPanel {
  const Format* format;
  int operand_bits;         // 8 or 16
  int64_t first, inputs;    // the first input, and the number of inputs
  int64_t tiles;            // number of tiles; the last may be partial
  const uint8_t* packed;    // dense: the K-panel's first tile; sparse: the block's first code
  const uint8_t* mask;      // of the K-panel's first tile; null: dense
  int64_t consumed, limit;  // sparse: non-zeros of the block before the K-panel; all of the block
  const void* scales;       // of the block's first group, in format->scale; [groups, 16]
  const uint8_t* zeros;     // zero points, [groups, 16]; null: none. Whole codes if there is a mask
};

// --- Activations -----------------------------------------------------------------------------------------------------
// Each points to a K-panel's first input. Rows are `stride` values apart, and zero from the row's end to the end of its
// last tile.

// An integer dot product may start at the bits of this float, times a power of two: see "anchored sum" in the glossary.
// Its last place is 1/16, for products that are sixteen times too large.
inline constexpr float kSumStart = 0x1.8p19f;

// Nine-bit integers (-255 … 255) of four rows as five lines of int8: row r = line r + 3 · line (r + 1).
inline constexpr int kNineBitRows = 4, kNineBitLines = kNineBitRows + 1, kNineBitFactor = 3;

// Integer activations, for integer weights: codes or, with zero points, code · 2^zero_shift - zero.
// With several limbs a segment has at most 128 inputs, so that its dot product fits int32: 65535 · 255 · 128 < 2^31.
struct IntegerActivations {
  const int8_t* limbs[kMaxLimbs];  // [batch, stride] each
  int limb_count, limb_bits;       // limb_bits: kLimbBits, or 0 for addends
  bool nine_bit_lines;             // one limb, with kNineBitLines lines for each kNineBitRows rows
  int bits;                        // of a value, including the sign
  int64_t stride, batch;
  int64_t segment;      // inputs that share every scale: a multiple of 16, or more than the K-panel has
  const int32_t* sums;  // [batch, segment_stride]: sum of x over each segment
  const float* units;   // [batch, segment_stride]: what 1 stands for in a segment's dot product; null: 1
  const float* starts;  // [batch, segment_stride, 4]: kSumStart · unit, four times; null except for NEON
  int64_t segment_stride;
  bool one_unit = false;             // all units are weight_unit(format)
  const float* unit_sums = nullptr;  // [batch, segment_stride]: sums · units; null except for tiles with zero points
};

// Float activations: FloatType is float, or uint16_t for bf16.
template <class FloatType>
struct FloatActivations {
  const FloatType* x;  // [batch, stride]
  int64_t stride, batch;
};

// fp16 activations; each group of kHalfGroup inputs has a unit of its own.
inline constexpr int kHalfGroup = 32;
struct HalfActivations {
  const uint16_t* x;  // [batch, stride]
  int64_t stride, batch;
  const float* units;  // [batch, unit_stride]: what 1 stands for in a product with a weight's fp16
  int64_t unit_stride;
};

// Rows in tiles, for matrix units: a row tile is 16 rows × 64 bytes (1 KiB), a row panel is the row tiles of 16 rows
// over the K-panel, one after another.
inline constexpr int kTileRows = 16;

// bf16 activations for matrix units: row panels, or rows as given, if they are whole tiles.
struct TiledActivations {
  const uint16_t* first;
  int64_t row_panel_stride, tile_stride, row_stride;  // values from one to the next
  int64_t rows;                                       // the last row panel may be partial
};

// --- Rows × packed weights -------------------------------------------------------------------------------------------
// out [batch, 16] += x · Wᵀ over the K-panel. Integer kernels sum the K-panel first, and then add once.
//
// Returns the number of non-zeros that a sparse K-panel has (0 if dense), or -1, with `out` undefined, if the mask has
// more bits than the block has codes. May read up to kSlackBytes past the block's last byte. `scratch`:
// k_panel_scratch_bytes.

TILEPRESS_OPERATION(linear_f32_i8_int, int64_t(const KPanel&, const IntegerActivations&, float* out, uint8_t* scratch));
TILEPRESS_OPERATION(linear_f32_f32_any,
                    int64_t(const KPanel&, const FloatActivations<float>&, float* out, uint8_t* scratch));
TILEPRESS_OPERATION(linear_f32_bf16_any,
                    int64_t(const KPanel&, const FloatActivations<uint16_t>&, float* out, uint8_t* scratch));
TILEPRESS_OPERATION(linear_f32_f16_any, int64_t(const KPanel&, const HalfActivations&, float* out, uint8_t* scratch));

// --- Decode, then multiply: many rows --------------------------------------------------------------------------------
// A K-panel is decoded once, then multiplied with all rows. Decoders return what linear kernels return, and need
// k_panel_scratch_bytes.

// To float32 [inputs rounded up to whole tiles, 16], scales applied.
TILEPRESS_OPERATION(decode_f32_any, int64_t(const KPanel&, float* weights, uint8_t* scratch));

// To tiles of operands for a matrix unit: 1 KiB each, in VNNI order, 32 inputs of bf16 or 64 of int8. int8 tiles have
// no scales applied; bf16 tiles if `scaled`.
TILEPRESS_OPERATION(decode_bf16_any, int64_t(const KPanel&, bool scaled, uint16_t* tiles, uint8_t* scratch));
TILEPRESS_OPERATION(decode_i8_int, int64_t(const KPanel&, int8_t* tiles, uint8_t* scratch));

// out [batch, 16] += x · weights, for one or two blocks (weights[1] and out[1] may be null).
struct F32Product {
  const float* weights[2];
  int64_t inputs;
  FloatActivations<float> x;
  float* out[2];
};
TILEPRESS_OPERATION(matmul_f32_f32_f32, void(const F32Product&));

// sums [rows, 16] += x · tiles, for some blocks: float32, or exact int32. x and sums have room for whole row panels: a
// matrix unit multiplies the missing rows of the last one too.
struct TileProduct {
  const void* const* tiles;        // of each block
  int64_t blocks, count;           // count: tiles of a block
  const void* x;                   // row panels
  int64_t rows, row_panel_stride;  // row_panel_stride: bytes
  void* sums;                      // [blocks] of them
  int64_t block_stride;            // bytes of `sums` from one block to the next
  bool first;                      // `sums` are set, not added to
  const void* next_x;              // as many row panels, to prefetch meanwhile; null: none
  const uint8_t* const* ahead;     // of each block, `ahead_bytes` to prefetch
  int64_t ahead_bytes;
};
TILEPRESS_OPERATION(matmul_f32_bf16_bf16, void(const TileProduct&));
TILEPRESS_OPERATION(matmul_i32_i8_i8, void(const TileProduct&));

// out [batch, 16] += float(dots) · unit · scale, or is set to it, of one block, for a segment that is a whole K-panel
// and activations of one limb, which are not looked at themselves.
struct SegmentDots {
  const KPanel* weights;
  IntegerActivations x;
  const int32_t* dots;  // [batch, 16]
  float* out;
  bool first;  // `out` is set
};
TILEPRESS_OPERATION(epilogue_f32_i32, void(const SegmentDots&));

// out [16 · row panels, 16] += x · tiles · scales, for one or two blocks (tiles[1] and out[1] may be null), whose
// segments are shorter than a K-panel. `x.limbs[0]` points to row panels; with two limbs, a row panel of high limbs is
// followed by one of low limbs. Three limbs are not supported.
struct IntegerProduct {
  const KPanel* weights[2];
  const int8_t* tiles[2];
  IntegerActivations x;
  int64_t row_panel_stride;  // bytes
  int64_t k_panel;           // inputs, whole segments, that are summed before they are added to `out`
  float* out[2];
  // Part of a K-panel: `out` has the K-panel's sums so far, to which segments are added one by one. first: its first
  // part, `out` is set.
  bool in_parts = false, first = false;
};
TILEPRESS_OPERATION(matmul_f32_i8_i8, void(const IntegerProduct&));

// Scales applied to the accumulators of each group: for one block and unscaled bf16 tiles, group after group,
//   sums [16 · row panels, 16] = fma(group's dot product, scale, sums)
// Integers that bf16 represents, times a power of two, are multiplied exactly while a group's sums are below 2^24.
struct GroupProduct {
  const KPanel* weights;
  const uint16_t* tiles;
  int64_t count;  // tiles
  int64_t group;  // inputs that share every scale: whole tiles; the last group may be partial
  TiledActivations x;
  float* sums;
};
// `scratch`: the K-panel's scales as float32.
TILEPRESS_OPERATION(matmul_f32_bf16_bf16_groups, void(const GroupProduct&, uint8_t* scratch));

// --- Decode while multiplying: few rows on a matrix unit -------------------------------------------------------------
// Tiles are decoded into a small buffer while the matrix unit multiplies those before. consumed[block] is set to what
// linear kernels return. Those that return bool return false, having done nothing, for weights they do not support.

// One or two row panels × any number of blocks. `scratch`: blocks_scratch_bytes.
struct Bf16Blocks {
  const KPanel* blocks;
  int64_t count;
  bool in_pairs;        // two blocks share each load of activations
  bool scaled;          // scales are applied when tiles are decoded
  const float* scales;  // [count, 16]; null: 1
  int64_t tiles;        // per block
  TiledActivations x;
  float* out;  // [count, 16 · row panels, 16]
};
TILEPRESS_OPERATION(linear_f32_bf16_any_tiles, bool(const Bf16Blocks&, int64_t* consumed, uint8_t* scratch));

// At most two row panels, or one with two limbs, × any number of blocks. `scratch`: blocks_scratch_bytes.
struct IntegerBlocks {
  const KPanel* blocks;
  int64_t count;
  IntegerActivations x;
  int64_t row_panel_stride, k_panel;  // as in IntegerProduct
  float* out;                         // [count, 16 · row panels, 16]
};
TILEPRESS_OPERATION(linear_f32_i8_int_tiles, void(const IntegerBlocks&, int64_t* consumed, uint8_t* scratch));

// One row panel × one block; `tiles` of the product is not used. `scratch`: group_scratch_bytes.
TILEPRESS_OPERATION(linear_f32_bf16_any_groups, bool(const GroupProduct&, int64_t* consumed, uint8_t* scratch));

// Whether int8 tiles can be multiplied segment by segment: whole tiles, or half tiles.
constexpr bool tiles_accept(int64_t segment) { return segment % tile_inputs(8) == 0 || segment == tile_inputs(8) / 2; }

// --- Epilogue --------------------------------------------------------------------------------------------------------

// y [rows, neurons] = accumulators · scale + bias, rounded to `type` as torch does.
struct BlockResults {
  const float* accumulators;   // [blocks][rows, 16]
  int64_t block_stride, rows;  // block_stride: floats
  const float* scales;         // [rows]; null: 1
  const float* bias;           // [neurons]; null: none
  int64_t neurons;
  FloatType type;
  uint8_t* y;
  int64_t stride;  // bytes from one row of y to the next
};
TILEPRESS_OPERATION(epilogue_fp_f32, void(const BlockResults&));

// --- Scratch ---------------------------------------------------------------------------------------------------------

// A K-panel's non-zeros, its decoded operands and its scales, each followed by room for one vector. A K-panel of
// `tiles` tiles has at most 4 · tiles + 1 groups.
constexpr int64_t k_panel_scratch_bytes(int64_t tiles) { return 3 * (tiles + 1) * kMaxTileBytes; }

// linear_f32_bf16_any_tiles, linear_f32_i8_int_tiles: the above, and the tiles of two blocks.
constexpr int64_t blocks_scratch_bytes(int64_t tiles) { return 3 * k_panel_scratch_bytes(tiles); }

// linear_f32_bf16_any_groups: scales, k_panel_scratch_bytes, and bf16 tiles.
constexpr int64_t group_scratch_bytes(int64_t tiles) {
  return (tiles + 1) * kMaxTileBytes + k_panel_scratch_bytes(tiles) + 2 * tiles * kMaxTileBytes;
}

}  // namespace tilepress
