// Block floating point of FP16 numbers.
#pragma once

#include "quantize/scales.h"
#include "simd/simd.h"
#include "tilepress/kv_bfp.h"

namespace tilepress {
namespace {

inline constexpr uint32_t kLeastNormalFp16 = std::bit_cast<uint32_t>(0x1p-14f);

// Magnitudes, as bits of float32, rounded to FP16, nearest even, saturating: uint32_t or Uint32s. Adding a power of two
// that has no place for more bits than FP16 keeps makes the addition do the rounding.
template <class Bits>
[[gnu::always_inline]] inline Bits round_magnitudes(Bits magnitudes) {
  using Numbers = std::conditional_t<std::is_same_v<Bits, uint32_t>, float, Floats>;
  constexpr uint32_t kMax = std::bit_cast<uint32_t>(65504.0f);
  const Bits finite = magnitudes < kMax ? magnitudes : kMax - Bits{};
  const Bits power = (finite > kLeastNormalFp16 ? finite : kLeastNormalFp16 - Bits{}) & 0x7f800000;
  const Numbers anchor = std::bit_cast<Numbers>(power + (13u << 23));
  return std::bit_cast<Bits>((std::bit_cast<Numbers>(finite) + anchor) - anchor);
}

// What the last of `mantissa` bits stands for under an FP16 exponent field: 2^(max(field, 1) - 15 - (mantissa - 1)).
inline float unit_of_field(int field, int mantissa) {
  return std::bit_cast<float>(static_cast<uint32_t>(most(field, 1) - 15 - (mantissa - 1) + 127) << 23);
}

// The same for a group whose largest magnitude, rounded to FP16, has these bits of float32.
inline float unit_of(uint32_t largest, int mantissa) {
  return unit_of_field(static_cast<int>(largest >> 23) - 127 + 15, mantissa);
}

}  // namespace
}  // namespace tilepress
