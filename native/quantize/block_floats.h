// One value of block floating point, for plain loops of known length that compilers vectorise.
#pragma once

#include "quantize/scales.h"
#include "tilepress/kv.h"

namespace tilepress {
namespace {

// Bits of the magnitude rounded to FP16, nearest even, saturating: adding a power of two that has no place for more
// bits than FP16 keeps makes the addition do the rounding. Compared as integers, which compilers vectorise.
inline uint32_t to_fp16(float x) {
  constexpr uint32_t kMax = std::bit_cast<uint32_t>(65504.0f), kLeastNormal = std::bit_cast<uint32_t>(0x1p-14f);
  const uint32_t magnitude = least(std::bit_cast<uint32_t>(x) & 0x7fffffff, kMax);
  const float anchor = std::bit_cast<float>((most(magnitude, kLeastNormal) & 0x7f800000) + (13u << 23));
  return std::bit_cast<uint32_t>((std::bit_cast<float>(magnitude) + anchor) - anchor);
}

// What magnitude 1 stands for under the largest of a group's FP16 magnitudes.
inline float unit_of(uint32_t largest, int mantissa) {
  const int field = static_cast<int>(largest >> 23) - 127 + 15;
  const int power = most(field, 1) - 15 - (mantissa - 1);
  return std::bit_cast<float>(static_cast<uint32_t>(power + 127) << 23);
}

}  // namespace
}  // namespace tilepress
