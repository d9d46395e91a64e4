// Weight formats, as kernels see them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tilepress/layout.h"

namespace tilepress {

enum class FloatType { f32, bf16, f16 };

// How weight / scale becomes a code.
enum class Rounding {
  integer,    // to nearest even, clamped to low … high, modulo 2^bits
  minifloat,  // a float of at most eight bits, with subnormals
  table,      // the nearest value of a table
  bf16,
  fp16,
};

enum class ScaleType { none, e8m0, bf16, fp16, fp32 };

// Tables belong to whoever made the format (bindings/format.h) and outlive all matrices that use it.
struct Format {
  Rounding rounding;
  int bits;
  float low, high;  // integer: smallest and largest code
  float max;        // the value that a group's largest magnitude is scaled to
  int emax;         // floor(log2(max))
  bool zero_point;
  ScaleType scale;
  int64_t group;      // inputs per scale
  int mantissa_bits;  // minifloat
  int min_exponent;   // minifloat: of the smallest normal number

  // Quantize, table: rank = number of thresholds <= x; codes[rank] is the code.
  int search_steps;         // there are 2^search_steps ranks
  const float* thresholds;  // [2^search_steps - 1], ascending, padded with +infinity
  const uint8_t* codes;     // [2^search_steps]

  // Decode; not for 16-bit formats.
  const float* values;     // [256]: value of each code, 0 past the last
  const uint16_t* bf16s;   // [256]: the same, rounded to bf16
  bool in_bf16;            // bf16s are exact
  const int8_t* integers;  // [16]: values of 4-bit codes ÷ unit, if those are integers; otherwise null
  float unit;              // a power of two
  float half_unit;         // what 1 stands for in fp16 weights, a power of two; 0 if fp16 cannot represent all values
  const uint16_t* halves;  // [64]: value ÷ half_unit of each code of at most six bits, 0 past the last; or null. 8-bit
                           // codes become fp16 by a shift
};

// Whether values span fp16's whole range of exponents: products overflow fp16 unless the largest value is known.
constexpr bool has_half_range(const Format& format) {
  return format.rounding == Rounding::fp16 ||
         (format.rounding == Rounding::minifloat && format.bits == 8 && format.mantissa_bits == 2);
}

// Whether values may be so large that they must be scaled before they are summed.
constexpr bool scales_first(const Format& format) {
  return format.rounding == Rounding::bf16 && format.scale != ScaleType::none;
}

// A zero point is a byte that spans the range of the codes (formats/zero_points.py): it stands for byte / 2^zero_shift.
// code · 2^zero_shift - byte is an integer of nine bits, including the sign.
constexpr int zero_shift(const Format& format) { return format.zero_point ? 8 - format.bits : 0; }
constexpr float zero_step(const Format& format) { return 1.0f / static_cast<float>(1 << zero_shift(format)); }

// What 1 stands for in the integers that weights are decoded to, before their scale.
constexpr float weight_unit(const Format& format) { return format.integers ? format.unit : zero_step(format); }

}  // namespace tilepress
