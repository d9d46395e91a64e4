// Bit planes of many groups. Simd brings
//   to_halves(floats, halves): 64 float32 to fp16, the nearest, overflowing to infinity;
//   pack<mantissa>(halves, planes): the planes of 64 fp16; returns their field;
//   unpack<mantissa>(planes, unit, halves): the inverse, where 1 stands for `unit`.
// Truncation leaves planes out and changes none that stay, so magnitudes are made with 16 bits whatever the mantissa.
#pragma once

#include <cstring>
#include <utility>

#include "quantize/scales.h"

namespace tilepress {
namespace {

// What the last of `mantissa` bits stands for under a field: 2^(max(field, 1) - 15 - (mantissa - 1)).
inline float unit_of_field(int field, int mantissa) {
  return std::bit_cast<float>(static_cast<uint32_t>(most(field, 1) - 15 - (mantissa - 1) + 127) << 23);
}

template <class Simd>
const uint16_t* as_halves(FloatType type, const void* values, int64_t group, uint16_t* halves) {
  const int64_t at = group * kPlaneValues;
  if (type == FloatType::f16) return static_cast<const uint16_t*>(values) + at;
  if (type == FloatType::f32) {
    Simd::to_halves(static_cast<const float*>(values) + at, halves);
    return halves;
  }
  float floats[kPlaneValues];
  for (int i = 0; i < kPlaneValues; ++i) floats[i] = bf16_to_float(static_cast<const uint16_t*>(values)[at + i]);
  Simd::to_halves(floats, halves);
  return halves;
}

template <class Simd, int mantissa>
void pack_groups(FloatType type, const void* values, int64_t groups, uint8_t* planes, uint8_t* fields) {
  alignas(64) uint16_t halves[kPlaneValues];
  for (int64_t group = 0; group < groups; ++group, planes += (1 + mantissa) * kPlaneBytes) {
    fields[group] = Simd::template pack<mantissa>(as_halves<Simd>(type, values, group, halves), planes);
  }
}

template <class Simd, int mantissa>
void unpack_groups(const uint8_t* planes, const uint8_t* fields, int64_t groups, uint16_t* halves) {
  for (int64_t group = 0; group < groups; ++group, planes += (1 + mantissa) * kPlaneBytes, halves += kPlaneValues) {
    Simd::template unpack<mantissa>(planes, unit_of_field(fields[group], kMaxMantissa), halves);
  }
}

// Every mantissa has its own instance, so that planes which are not asked for are not computed.
template <class Simd>
void pack_planes_with(FloatType type, const void* values, int64_t groups, int mantissa, uint8_t* planes,
                      uint8_t* fields) {
  [&]<int... less>(std::integer_sequence<int, less...>) {
    (void)((mantissa == less + 1 && (pack_groups<Simd, less + 1>(type, values, groups, planes, fields), true)) || ...);
  }(std::make_integer_sequence<int, kMaxMantissa>());
}

template <class Simd>
void unpack_planes_with(const uint8_t* planes, const uint8_t* fields, int64_t groups, int mantissa, uint16_t* halves) {
  [&]<int... less>(std::integer_sequence<int, less...>) {
    (void)((mantissa == less + 1 && (unpack_groups<Simd, less + 1>(planes, fields, groups, halves), true)) || ...);
  }(std::make_integer_sequence<int, kMaxMantissa>());
}

}  // namespace
}  // namespace tilepress
