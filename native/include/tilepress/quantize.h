// Operations of quantize/: numbers to codes, and back.
//
// Kernels work on one row; loops over rows, and all memory, are the caller's.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tilepress/format.h"
#include "tilepress/kernel.h"

namespace tilepress {

// --- Weights ---------------------------------------------------------------------------------------------------------

// Scales and zero points of one neuron; those of group g are at index g · kBlockNeurons.
struct GroupScales {
  void* scales;    // in format.scale
  uint8_t* zeros;  // null if the format has none
  bool given;      // scales and zeros are inputs; otherwise they are computed and stored
  bool whole;      // computed zero points must be whole codes, as sparse weights need them
};

// row [cols] to codes [cols]: uint8_t, or uint16_t for 16-bit formats.
TILEPRESS_OPERATION(quantize_any_f32, void(const Format&, const float* row, int64_t cols, GroupScales, void* codes));

// The inverse. `keep` [cols]: 0 or 1 for each code, a dropped one is 0; null: all are kept.
TILEPRESS_OPERATION(dequantize_f32_any,
                    void(const Format&, const void* codes, const uint8_t* keep, int64_t cols, GroupScales, float* row));

// --- Activations -----------------------------------------------------------------------------------------------------
// A row [count] of `type` to integers or fp16, padded with zeros to `padded` values. Outputs go to pieces of kPiece
// values that are `piece_stride` values apart: one after another (rows), or each in its row tile (row panels). A
// segment is what shares every scale, a multiple of 16 inputs. If a kernel reports a value that it cannot represent,
// its outputs are undefined.

inline constexpr int kPiece = 64;      // int8 values
inline constexpr int kWordPiece = 32;  // bf16 values

// Integers of more than eight bits (including the sign) as int8 limbs, most significant first:
//   x = limbs[0], or 128 · limbs[0] + limbs[1], …     all but the first are 0 … 127
// Nine bits can also be addends, x = limbs[0] + limbs[1], whose dot products need no shift. 255 does not fit two
// addends: a group that has it is negated, with its unit, and one that also has -255 uses a third addend.
inline constexpr int kLimbBits = 7, kMaxLimbs = 3;
constexpr int limbs_of(int mantissa) { return mantissa > 2 * kLimbBits ? 3 : mantissa > kLimbBits ? 2 : 1; }

// To int8 with one scale per row. False if a value is not finite.
struct Int8Input {
  const uint8_t* x;
  FloatType type;
  int64_t count, segment;
};
struct Int8Output {
  int8_t* values;
  int64_t padded, piece_stride;
  int32_t* sums;  // of each segment
  float* scale;
};
TILEPRESS_OPERATION(quantize_i8_fp, bool(const Int8Input&, const Int8Output&));

// To block floating point. Rounded to fp16 and truncated; or, if `nearest`, rounded to nearest from float32.
struct BfpInput {
  const uint8_t* x;
  FloatType type;
  int64_t count, group, segment;  // segment divides group
  int mantissa;                   // bits of magnitude
  bool addends;                   // instead of limbs, for a mantissa of 8
  bool nearest = false;
  float unit = 1;  // what 1 stands for in the weights' integers
};
struct BfpOutput {
  int8_t* limbs[kMaxLimbs];  // limbs_of(mantissa) limbs, or kMaxLimbs addends
  uint16_t* words;           // if not null, instead of limbs: the values as bf16, for a mantissa of at most 8
  int64_t padded, piece_stride;
  int32_t* sums;  // of each segment
  float* units;   // of each segment: what 1 stands for in a dot product with the weights' integers
};
// Returns how many limbs or addends are not all zero; 0 if a value is not finite or, with `nearest`, not below
// kMostNearest.
inline constexpr float kMostNearest = 0x1p96f;
TILEPRESS_OPERATION(quantize_bfp_fp, int(const BfpInput&, const BfpOutput&));

// To fp16. Each group of kHalfGroup is scaled by a power of two so that its largest magnitude is in
// [2^exponent, 2^(exponent + 1)). False if a value is not below kMostNearest.
struct HalfInput {
  const uint8_t* x;
  FloatType type;
  int64_t count;
  int exponent;
  float unit;  // what 1 stands for in the weights' fp16
};
struct HalfOutput {
  uint16_t* values;
  int64_t padded;  // whole groups
  float* units;    // of each group: what 1 stands for in a product with a weight's fp16
};
TILEPRESS_OPERATION(quantize_f16_fp, bool(const HalfInput&, const HalfOutput&));

}  // namespace tilepress
