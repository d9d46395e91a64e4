// A weight format as arithmetic needs it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tilepress/layout.h"

namespace tilepress {

enum class FloatType { f32, bf16, f16 };

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

}  // namespace tilepress
