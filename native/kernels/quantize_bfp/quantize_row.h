// A row of activations as block floating point: the C++ twin of formats/bfp_reference.py. Plain loops of known length,
// for compilers to vectorise; in a nameless namespace for the reason that pack_block.h gives.
#pragma once

#include <cstring>

#include "kernels/scales.h"

namespace tilepress {
namespace {

// Bits of the magnitude rounded to FP16, nearest even, saturating: adding a power of two that has no place for more
// bits than FP16 keeps makes the addition do the rounding. Compared as integers, which compilers vectorise.
uint32_t to_fp16(float x) {
  constexpr uint32_t kMax = std::bit_cast<uint32_t>(65504.0f), kLeastNormal = std::bit_cast<uint32_t>(0x1p-14f);
  const uint32_t magnitude = least(std::bit_cast<uint32_t>(x) & 0x7fffffff, kMax);
  const float anchor = std::bit_cast<float>((most(magnitude, kLeastNormal) & 0x7f800000) + (13u << 23));
  return std::bit_cast<uint32_t>((std::bit_cast<float>(magnitude) + anchor) - anchor);
}

// What magnitude 1 stands for under the largest of a group's FP16 magnitudes.
float unit_of(uint32_t largest, int mantissa) {
  const int field = static_cast<int>(largest >> 23) - 127 + 15;
  const int power = most(field, 1) - 15 - (mantissa - 1);
  return std::bit_cast<float>(static_cast<uint32_t>(power + 127) << 23);
}

// What 1 stands for in a group, and its largest magnitude.
struct GroupOf {
  float unit;
  int32_t largest;
};

// A group of activations as signed integers of `mantissa` bits and a sign.
template <int group>
GroupOf to_group_of(const float* floats, int mantissa, int32_t* values) {
  uint32_t halves[group], largest = 0;
  for (int i = 0; i < group; ++i) halves[i] = to_fp16(floats[i]);
  for (int i = 0; i < group; ++i) largest = most(largest, halves[i]);
  const float unit = unit_of(largest, mantissa);
  const float per_unit = std::bit_cast<float>((254u << 23) - std::bit_cast<uint32_t>(unit));  // units are powers of two
  for (int i = 0; i < group; ++i) {
    const int32_t magnitude = static_cast<int32_t>(std::bit_cast<float>(halves[i]) * per_unit);
    const int32_t sign = std::bit_cast<int32_t>(floats[i]) >> 31;
    values[i] = (magnitude ^ sign) - sign;
  }
  return {unit, static_cast<int32_t>(std::bit_cast<float>(largest) * per_unit)};
}

// Values of nine bits, of which none is 255 unless one is -255; returns how many addends it takes.
template <int group>
int write_addends(const int32_t* values, int8_t* const* addends, int64_t first) {
  int8_t one[group], two[group], three[group];
  int32_t count = 0;
  for (int i = 0; i < group; ++i) {
    const int32_t half = values[i] >> 1, most = values[i] == 255;
    one[i] = static_cast<int8_t>(half);
    two[i] = static_cast<int8_t>(values[i] - half - most);
    three[i] = static_cast<int8_t>(most);
    count += most;
  }
  std::memcpy(addends[0] + first, one, group);
  std::memcpy(addends[1] + first, two, group);
  std::memcpy(addends[2] + first, three, group);
  return count ? 3 : 2;
}

template <int group>
void write_digits(const int32_t* values, int count, int8_t* const* digits, int64_t first) {
  int shift = kDigitBits * (count - 1);
  int8_t* to = digits[0] + first;
  for (int i = 0; i < group; ++i) to[i] = static_cast<int8_t>(values[i] >> shift);
  for (int digit = 1; shift; ++digit) {
    shift -= kDigitBits;
    to = digits[digit] + first;
    for (int i = 0; i < group; ++i) to[i] = static_cast<int8_t>(values[i] >> shift & 127);
  }
}

// Values of at most nine bits times what 1 stands for, a power of two: bf16 holds that. Of each four, the second and
// third trade places.
template <int group>
void write_words(const int32_t* values, float unit, uint16_t* words) {
  uint16_t in_order[group];
  for (int i = 0; i < group; ++i) {
    in_order[i] = static_cast<uint16_t>(std::bit_cast<uint32_t>(static_cast<float>(values[i]) * unit) >> 16);
  }
  uint64_t fours[group / 4];
  std::memcpy(fours, in_order, sizeof fours);
  for (uint64_t& four : fours) four = swap_middle(four);
  std::memcpy(words, fours, sizeof fours);
}

// Negates a group that has 255 and not -255; returns its unit.
template <int group>
float without_255(int32_t* values, const GroupOf& all) {
  const float unit = all.unit;
  if (all.largest < 255) return unit;
  int32_t least_value = 0, most_value = 0;
  for (int i = 0; i < group; ++i) least_value = least(least_value, values[i]);
  for (int i = 0; i < group; ++i) most_value = most(most_value, values[i]);
  if (most_value < 255 || least_value == -255) return unit;
  for (int i = 0; i < group; ++i) values[i] = -values[i];
  return -unit;
}

template <int group>
int quantize_groups(const BfpInput& in, const BfpOutput& out) {
  int digits = digits_of(in.mantissa);
  for (int64_t first = 0; first < in.count; first += group) {
    int32_t values[group];
    const GroupOf all = to_group_of<group>(in.floats + first, in.mantissa, values);
    const float unit = in.addends ? without_255<group>(values, all) : all.unit;
    for (int64_t i = 0; i < least<int64_t>(group, in.count - first); i += in.segment) {
      const int64_t at = (first + i) / in.segment;
      int32_t sum = 0;
      for (int64_t j = i; j < i + in.segment; ++j) sum += values[j];
      out.units[at] = unit;
      out.sums[at] = sum;
    }
    if (out.words) {
      write_words<group>(values, unit, out.words + first);
    } else if (in.addends) {
      digits = most(digits, write_addends<group>(values, out.digits, first));
    } else {
      write_digits<group>(values, digits, out.digits, first);
    }
  }
  return digits;
}

inline int quantize_bfp(const BfpInput& in, const BfpOutput& out) {
  if (in.group == 16) return quantize_groups<16>(in, out);
  if (in.group == 32) return quantize_groups<32>(in, out);
  if (in.group == 64) return quantize_groups<64>(in, out);
  return quantize_groups<128>(in, out);
}

}  // namespace
}  // namespace tilepress
