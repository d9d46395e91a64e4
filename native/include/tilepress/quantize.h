// Operations of quantize/: numbers to codes and back.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tilepress/format.h"
#include "tilepress/kernel.h"

namespace tilepress {

// Scales and zero points of one neuron; entry g lies at g * kBlockNeurons.
struct GroupScales {
  void* scales;
  uint8_t* zeros;
  bool given;  // use the scales (and zeros) that are there instead of setting them
  bool whole;  // zero points that are set must be codes
};

// Codes of one row [cols], uint8_t or (16-bit formats) uint16_t.
TILEPRESS_OPERATION(quantize_any_f32, void(const Format&, const float* row, int64_t cols, GroupScales, void* codes));

// The inverse: float32 values of a row of codes; `keep` is null (all) or one 0/1 byte a code.
TILEPRESS_OPERATION(dequantize_f32_any,
                    void(const Format&, const void* codes, const uint8_t* keep, int64_t cols, GroupScales, float* row));

// Integers of more than eight bits, the sign among them, are cut in limbs that int8 holds, the most significant first:
// x = limbs[0], or 128 * limbs[0] + limbs[1], and so on. All but the first are from 0 to 127. Those of nine bits can
// also be cut in **addends**, x = limbs[0] + limbs[1], whose products need no sums of their own; 255 is too large for
// that, so a group that has it is negated, and its unit too, and if it has -255 as well there is a third addend.
inline constexpr int kLimbBits = 7, kMaxLimbs = 3;
constexpr int limbs_of(int mantissa) { return mantissa > 2 * kLimbBits ? 3 : mantissa > kLimbBits ? 2 : 1; }

// A row of activations to int8 with one scale. `values` come in pieces of kPiece that lie `piece_stride` apart, with
// zeros behind the last up to `padded`, whole pieces. Of each segment, a multiple of 16 inputs, the sum of its values.
// Returns false, with the outputs meaningless, where one is not finite.
struct Int8Input {
  const uint8_t* x;
  FloatType type;
  int64_t count, segment;
};
struct Int8Output {
  int8_t* values;
  int64_t padded, piece_stride;
  int32_t* sums;
  float* scale;
};
inline constexpr int kPiece = 64;
TILEPRESS_OPERATION(quantize_i8_fp, bool(const Int8Input&, const Int8Output&));

// A row of activations to block floating point; `segment`, a multiple of 16 inputs, divides `group`. Weights' integers
// are of `unit` each. `nearest`: rounded so, from float32, and not cut off after a rounding to FP16.
struct BfpInput {
  const uint8_t* x;
  FloatType type;
  int64_t count, group, segment;
  int mantissa;
  bool addends;  // with a mantissa of 8
  bool nearest = false;
  float unit = 1;
};

// Values in limbs_of(mantissa) limbs, or in kMaxLimbs addends, in pieces of kPiece that lie `piece_stride` apart,
// with zeros behind the last up to `padded`, whole pieces. Or, where there is room for `words` and the mantissa has at
// most eight bits, what they stand for as bf16, in pieces of kWordPiece. Of each segment, the sum of its values, and
// what 1 stands for in a dot product with weights' integers.
struct BfpOutput {
  int8_t* limbs[kMaxLimbs];
  uint16_t* words;
  int64_t padded, piece_stride;
  int32_t* sums;
  float* units;
};
inline constexpr int kWordPiece = 32;
// Returns how many limbs or addends are not all zero; 0, with the outputs meaningless, where one is not finite or,
// with `nearest`, not below kMostNearest.
inline constexpr float kMostNearest = 0x1p96f;
TILEPRESS_OPERATION(quantize_bfp_fp, int(const BfpInput&, const BfpOutput&));

// A row of activations to fp16, the largest of each kHalfGroup being 2^exponent or more and less than twice that; and
// what 1 stands for in a product with weights' fp16, of `unit` each.
struct HalfInput {
  const uint8_t* x;
  FloatType type;
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
TILEPRESS_OPERATION(quantize_f16_fp, bool(const HalfInput&, const HalfOutput&));

}  // namespace tilepress
