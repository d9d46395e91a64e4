// Bit planes of many groups. Simd brings
//   pack<mantissa>(halves, planes): the planes of 64 fp16; returns their field;
//   unpack<mantissa>(planes, unit, halves): the inverse, where 1 stands for `unit`.
// A shorter mantissa is the first planes of a longer one, so magnitudes always have 16 bits.
#pragma once

#include <utility>

#include "quantize/block_floats.h"
#include "tilepress/pack.h"

namespace tilepress {
namespace {

template <FloatType type>
void to_halves(const void* values, int64_t first, uint16_t* halves) {
  for (int i = 0; i < kPlaneValues; i += kLanes) {
    store(to_fp16(load_floats<type>(static_cast<const Stored<type>*>(values) + first + i)), halves + i);
  }
}

// The fp16 of a group: as given, or the nearest in `halves`.
inline const uint16_t* as_halves(FloatType type, const void* values, int64_t group, uint16_t* halves) {
  const int64_t first = group * kPlaneValues;
  if (type == FloatType::f16) return static_cast<const uint16_t*>(values) + first;
  type == FloatType::f32 ? to_halves<FloatType::f32>(values, first, halves)
                         : to_halves<FloatType::bf16>(values, first, halves);
  return halves;
}

template <class Simd, int mantissa>
void pack_groups(FloatType type, const void* values, int64_t groups, uint8_t* planes, uint8_t* fields) {
  alignas(64) uint16_t halves[kPlaneValues];
  for (int64_t group = 0; group < groups; ++group, planes += (1 + mantissa) * kPlaneBytes) {
    fields[group] = Simd::template pack<mantissa>(as_halves(type, values, group, halves), planes);
  }
}

template <class Simd, int mantissa>
void unpack_groups(const uint8_t* planes, const uint8_t* fields, int64_t groups, uint16_t* halves) {
  for (int64_t group = 0; group < groups; ++group, planes += (1 + mantissa) * kPlaneBytes, halves += kPlaneValues) {
    Simd::template unpack<mantissa>(planes, unit_of_field(fields[group], kMaxMantissa), halves);
  }
}

// One instance per mantissa, so that no plane is computed that is not stored.
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
