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
  const float* values;      // 256: value of each code, 0 past the last; of no use to 16-bit formats
  const uint16_t* bf16s;    // the same, rounded to bf16
  bool in_bf16;             // which loses nothing
  const int8_t* integers;   // 16: the values of 4-bit codes in units of `unit`, where that makes them integers; or null
  float unit;               // a power of two
  // Where fp16 holds values to all its bits: what its 1 stands for, a power of two, else 0. Codes of eight bits are
  // shifted to their places; of at most six looked up.
  float half_unit;
  const uint16_t* halves;  // 64: value of each code in units of half_unit, 0 past the last; or null
};

// Whether values have as many exponents as fp16, so that its products have no room unless the largest value is known.
constexpr bool has_half_range(const Format& format) {
  return format.rounding == Rounding::fp16 ||
         (format.rounding == Rounding::minifloat && format.bits == 8 && format.mantissa_bits == 2);
}

// Whether values are so large that they must meet their scale before they are summed.
constexpr bool scales_first(const Format& format) {
  return format.rounding == Rounding::bf16 && format.scale != ScaleType::none;
}

// A zero point is a byte that covers the range of the codes (formats/zero_points.py): it stands for
// byte / 2^zero_shift, and code * 2^zero_shift - byte is an integer of eight bits and a sign.
constexpr int zero_shift(const Format& format) { return format.zero_point ? 8 - format.bits : 0; }
constexpr float zero_step(const Format& format) { return 1.0f / static_cast<float>(1 << zero_shift(format)); }

// What 1 stands for in the integers that weights are, before their scale.
constexpr float weight_unit(const Format& format) { return format.integers ? format.unit : zero_step(format); }

// Scales and zero points of one neuron; entry g lies at g * kBlockNeurons.
struct GroupScales {
  void* scales;
  uint8_t* zeros;
  bool given;  // use the scales (and zeros) that are there instead of setting them
  bool whole;  // zero points that are set must be codes
};

// Codes of one row [cols], uint8_t or (16-bit formats) uint16_t.
using QuantizeRow = void(const Format&, const float* row, int64_t cols, GroupScales, void* codes);

// The inverse: float32 values of a row of codes; `keep` is null (all) or one 0/1 byte a code.
using DequantizeRow = void(const Format&, const void* codes, const uint8_t* keep, int64_t cols, GroupScales,
                           float* row);

// Integers of more than eight bits, the sign among them, are cut in digits that int8 holds, the most significant first:
// x = digits[0], or 128 * digits[0] + digits[1], and so on. All but the first are from 0 to 127. Those of nine bits can
// also be cut in **addends**, x = digits[0] + digits[1], whose products need no sums of their own; 255 is too large for
// that, so a group that has it is negated, and its unit too, and if it has -255 as well there is a third addend.
inline constexpr int kDigitBits = 7, kMostDigits = 3;
constexpr int digits_of(int mantissa) { return mantissa > 2 * kDigitBits ? 3 : mantissa > kDigitBits ? 2 : 1; }

// A row of activations to int8 with one scale. `values` come in pieces of kPiece that lie `piece_stride` apart, with
// zeros behind the last up to `padded`, whole pieces. Of each segment, a multiple of 16 inputs, the sum of its values.
// Returns false, with the outputs meaningless, where one is not finite.
struct Int8Input {
  const uint8_t* x;
  Real type;
  int64_t count, segment;
};
struct Int8Output {
  int8_t* values;
  int64_t padded, piece_stride;
  int32_t* sums;
  float* scale;
};
inline constexpr int kPiece = 64;
using QuantizeInt8 = bool(const Int8Input&, const Int8Output&);

// A row of activations to block floating point; `segment`, a multiple of 16 inputs, divides `group`. Weights' integers
// are of `unit` each. `nearest`: rounded so, from float32, and not cut off after a rounding to FP16.
struct BfpInput {
  const uint8_t* x;
  Real type;
  int64_t count, group, segment;
  int mantissa;
  bool addends;  // with a mantissa of 8
  bool nearest = false;
  float unit = 1;
};

// Values in digits_of(mantissa) digits, or in kMostDigits addends, in pieces of kPiece that lie `piece_stride` apart,
// with zeros behind the last up to `padded`, whole pieces. Or, where there is room for `words` and the mantissa has at
// most eight bits, what they stand for as bf16, in pieces of kWordPiece. Of each segment, the sum of its values, and
// what 1 stands for in a dot product with weights' integers.
struct BfpOutput {
  int8_t* digits[kMostDigits];
  uint16_t* words;
  int64_t padded, piece_stride;
  int32_t* sums;
  float* units;
};
inline constexpr int kWordPiece = 32;
// Returns how many digits or addends are not all zero; 0, with the outputs meaningless, where one is not finite or,
// with `nearest`, not below kMostNearest.
inline constexpr float kMostNearest = 0x1p96f;
using QuantizeBfp = int(const BfpInput&, const BfpOutput&);

// A row of activations to fp16, the largest of each kHalfGroup being 2^exponent or more and less than twice that; and
// what 1 stands for in a product with weights' fp16, of `unit` each.
struct HalfInput {
  const uint8_t* x;
  Real type;
  int64_t count;
  int exponent;
  float unit;
};
struct HalfOutput {
  uint16_t* values;
  int64_t padded;  // to groups, with zeros
  float* units;
};
// Returns false, with the outputs meaningless, where one is not below kMostNearest.
using RoundHalves = bool(const HalfInput&, const HalfOutput&);

// Bit planes: groups of kPlaneValues values in block floating point, `mantissa` from 1 to 16. Of each group a word of
// signs, then the magnitudes' bits, a word each, from the most significant on; value i has bit i. And apart from them
// the group's FP16 exponent field, a byte each.
inline constexpr int kPlaneValues = 64;
inline constexpr int kPlaneBytes = kPlaneValues / 8;
inline constexpr int kMaxMantissa = 16;
inline constexpr int kMaxField = 30;

// A field above kMaxField says that the group has an infinity or NaN, or values that fp16 rounds to infinity; what its
// planes hold means nothing then.
using PackPlanes = void(Real type, const void* values, int64_t groups, int mantissa, uint8_t* planes, uint8_t* fields);

// The inverse: the nearest fp16.
using UnpackPlanes = void(const uint8_t* planes, const uint8_t* fields, int64_t groups, int mantissa, uint16_t* halves);

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
using LinearInteger = int64_t(const SpanWeights&, const IntegerActivations&, float* out, uint8_t* scratch);
using LinearF32 = int64_t(const SpanWeights&, const FloatActivations<float>&, float* out, uint8_t* scratch);
using LinearBf16 = int64_t(const SpanWeights&, const FloatActivations<uint16_t>&, float* out, uint8_t* scratch);
using LinearF16 = int64_t(const SpanWeights&, const HalfActivations&, float* out, uint8_t* scratch);

// For many rows weights are decoded once: to float32 [inputs, 16], multiplied with their scales, with room for a whole
// tile's inputs at the end,
using DecodeF32 = int64_t(const SpanWeights&, float* weights, uint8_t* scratch);

// and of one or two blocks, of which the second's may be null, out [batch, 16] += x · weights;
struct F32Product {
  const float* weights[2];
  int64_t inputs;
  FloatActivations<float> x;
  float* out[2];
};
using MultiplyF32 = void(const F32Product&);

// or to tiles of operands as matrix units take them: 1 KiB each, in VNNI order, 32 inputs of bf16 or 64 of int8.
// `scaled` tiles hold weights, others lack the scale. All that decode return as linear kernels do.
using DecodeBf16 = int64_t(const SpanWeights&, bool scaled, uint16_t* tiles, uint8_t* scratch);
using DecodeInt8 = int64_t(const SpanWeights&, int8_t* tiles, uint8_t* scratch);

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
using MultiplyBf16 = void(const Bf16Product&);

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
using LinearBf16Blocks = bool(const Bf16Blocks&, int64_t* taken, uint8_t* scratch);

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
using MultiplyGroups = void(const GroupProduct&, uint8_t* scratch);
// The same for one lot, with tiles decoded as they are needed; `tiles` of the product are not used. Fills in the codes
// that the block took, as linear kernels return them. Returns false, having done nothing, for weights that it does not
// take. `scratch` holds group_scratch_bytes.
using LinearGroups = bool(const GroupProduct&, int64_t* taken, uint8_t* scratch);

struct IntegerProduct {
  const SpanWeights* weights[2];
  const int8_t* tiles[2];
  IntegerActivations x;  // but its digits are tiles; of two digits each lot is two, one after the other; never three
  int64_t lot_stride;
  int64_t span;  // inputs, whole segments of them, that are summed up apart before they are added to `out`
  float* out[2];
};
using MultiplyInt8 = void(const IntegerProduct&);

// The same for at most two lots, or one of two digits, and any number of blocks, decoded tile by tile. `out` [count, 16
// * lots, 16]. `scratch` holds blocks_scratch_bytes.
struct IntegerBlocks {
  const SpanWeights* blocks;
  int64_t count;
  IntegerActivations x;
  int64_t lot_stride, span;
  float* out;
};
using LinearInt8Blocks = void(const IntegerBlocks&, int64_t* taken, uint8_t* scratch);

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
using StoreBlock = void(const BlockResults&);

// Some tokens of a head of keys and values [count, head_dim], and one token's queries of the heads that share it.
struct HeadTokens {
  const float* queries;  // [heads, head_dim], scaled
  int64_t heads;
  const void *keys, *values;
  Real type;
  int64_t count, head_dim;
};
// Attention to these tokens alone: of each head the sum of values times their weights, e to the power of how much less
// a score is than the largest one; and behind it, that score and the sum of weights. `weights` holds heads * count; out
// [heads, head_dim + 2].
using AttendHead = void(const HeadTokens&, float* weights, float* out);
// x / (1 + e^-x), in place.
using SiluFloats = void(float* values, int64_t count);

// Reads every byte once, one after the other or in several places at a time, and returns a checksum, so that the reads
// cannot be left out.
using ReadBytes = uint64_t(const uint8_t* data, size_t size, bool in_parts);

constexpr int64_t block_codes(const BlockShape& shape) { return shape.tiles * tile_codes(shape.operand_bits); }

constexpr int code_bytes(int bits) { return bits == 16 ? 2 : 1; }

// A decoded tile, whatever its operands.
inline constexpr int kMaxTileBytes = kBlockNeurons * kVectorBytes;

// A block's kept codes in order, with room for a vector more.
constexpr int64_t unpack_scratch_bytes(const BlockShape& shape) {
  return block_codes(shape) * code_bytes(shape.bits) + kSlackBytes;
}

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
