// float32 to and from the 16-bit floats by integer arithmetic: the same bits on every machine.
#pragma once

#include <bit>
#include <cstdint>

namespace tilepress {

inline float bf16_to_float(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

// Exponent and mantissa are moved into place and the bias corrected by one exact multiplication, subnormals included.
inline float fp16_to_float(uint16_t bits) {
  const uint32_t magnitude = static_cast<uint32_t>(bits & 0x7fff) << 13;
  const uint32_t scaled = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) * 0x1p112f);
  const uint32_t special = magnitude >= 0x0f800000 ? 0x7f800000 | magnitude : scaled;  // infinity, NaN
  return std::bit_cast<float>(special | static_cast<uint32_t>(bits & 0x8000) << 16);
}

// Finite x to the nearest bf16, ties to even, saturating at the largest finite one.
inline uint16_t float_to_bf16(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const uint32_t rounded = (bits & 0x7fffffff) + 0x7fff + (bits >> 16 & 1);
  const uint32_t magnitude = rounded >= 0x7f800000 ? 0x7f7f : rounded >> 16;
  return static_cast<uint16_t>((bits >> 16 & 0x8000) | magnitude);
}

// Finite x to the nearest fp16, ties to even, saturating at 65504. Adding a power of two whose last place is that of
// the result makes the addition itself do the rounding.
inline uint16_t float_to_fp16(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const float magnitude = std::bit_cast<float>(bits & 0x7fffffff);
  const float clamped = magnitude < 65504.0f ? magnitude : 65504.0f;
  const uint32_t exponent = std::bit_cast<uint32_t>(clamped) & 0x7f800000;
  const uint32_t floor_exponent = exponent < 0x38800000 ? 0x38800000 : exponent;  // 2^-14: subnormals below
  const float anchor = std::bit_cast<float>(floor_exponent + (13u << 23));
  const float rounded = (clamped + anchor) - anchor;
  const uint32_t shifted = std::bit_cast<uint32_t>(rounded * 0x1p-112f) >> 13;
  return static_cast<uint16_t>((bits >> 16 & 0x8000) | shifted);
}

}  // namespace tilepress
