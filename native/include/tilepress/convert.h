// float32 to and from small floats by integer arithmetic: the same bits on every machine. Static, not merely inline: a
// copy compiled for one instruction set must not serve another.
#pragma once

#include <bit>
#include <cstdint>

namespace tilepress {

static inline float bf16_to_float(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

// Exponent and mantissa are moved into place and the bias corrected by one exact multiplication, subnormals
// included.
static inline float fp16_to_float(uint16_t bits) {
  const uint32_t magnitude = static_cast<uint32_t>(bits & 0x7fff) << 13;
  const uint32_t scaled = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) * 0x1p112f);
  const uint32_t special = magnitude >= 0x0f800000 ? 0x7f800000 | magnitude : scaled;  // infinity, NaN
  return std::bit_cast<float>(special | static_cast<uint32_t>(bits & 0x8000) << 16);
}

// Finite x to the nearest bf16, ties to even, saturating at the largest finite one.
static inline uint16_t float_to_bf16(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const uint32_t rounded = (bits & 0x7fffffff) + 0x7fff + (bits >> 16 & 1);
  const uint32_t magnitude = rounded >= 0x7f800000 ? 0x7f7f : rounded >> 16;
  return static_cast<uint16_t>((bits >> 16 & 0x8000) | magnitude);
}

// The nearest bf16, ties to even, overflowing to infinity and keeping NaN, as arithmetic does.
static inline uint16_t round_to_bf16(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const uint16_t rounded = static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
  return (bits & 0x7fffffff) > 0x7f800000 ? uint16_t{0x7fc0} : rounded;
}

// Code, without its sign, of the nearest number, ties to even, of a float format with `mantissa_bits` whose
// smallest normal number is 2^min_exponent. `x` is not negative and at most the format's largest number.
// Adding a power of two whose last place is that of the result makes the addition itself do the rounding.
static inline uint32_t round_magnitude(float x, int mantissa_bits, int min_exponent) {
  const uint32_t lowest = static_cast<uint32_t>(min_exponent + 127);
  const uint32_t own = std::bit_cast<uint32_t>(x) >> 23;
  const uint32_t exponent = own < lowest ? lowest : own;
  const uint32_t anchor = (exponent + 23 - static_cast<uint32_t>(mantissa_bits)) << 23;
  const uint32_t sum = std::bit_cast<uint32_t>(x + std::bit_cast<float>(anchor));
  return ((exponent - lowest) << mantissa_bits) + (sum - anchor);
}

// Finite x to the nearest fp16, ties to even, saturating at 65504.
static inline uint16_t float_to_fp16(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const float magnitude = std::bit_cast<float>(bits & 0x7fffffff);
  const float clamped = magnitude < 65504.0f ? magnitude : 65504.0f;
  return static_cast<uint16_t>((bits >> 16 & 0x8000) | round_magnitude(clamped, 10, -14));
}

// The nearest fp16, ties to even, overflowing to infinity and keeping NaN, as torch converts.
static inline uint16_t round_to_fp16(float x) {
  constexpr float kOverflow = 65520.0f;  // the least magnitude that rounds to infinity
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const float magnitude = std::bit_cast<float>(bits & 0x7fffffff);
  if (magnitude >= kOverflow) return static_cast<uint16_t>((bits >> 16 & 0x8000) | 0x7c00);
  return magnitude < kOverflow ? float_to_fp16(x) : uint16_t{0x7e00};
}

}  // namespace tilepress
