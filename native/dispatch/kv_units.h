// Single values of a unit (tilepress/kv.h), and FP16 numbers as integers under a shared exponent.
#pragma once

#include <algorithm>
#include <cstdlib>

#include "tilepress/convert.h"
#include "tilepress/kv.h"

namespace tilepress {

// The keys or the values of a block, to be written.
struct KvUnits {
  uint8_t *codes, *lows, *exponents;  // lows may be null

  KvUnits unit(int64_t index) const {
    return {codes + index * kKvUnitCodes, lows ? lows + index * kKvUnitLows : nullptr,
            exponents + index * kKvUnitExponents};
  }
};

inline int kv_field(uint16_t half) { return half >> 10 & 31; }

// The 8-bit integer that an FP16 number is under a shared exponent, cut to `bits`.
inline int kv_integer(uint16_t half, int exponent, int bits) {
  const int field = kv_field(half), significand = (half & 1023) | (field ? 1024 : 0);
  const int shift = std::min(3 + std::max(exponent, 1) - std::max(field, 1), 31);  // more is undefined
  const int magnitude = (significand >> shift) & -(1 << (8 - bits));
  return half & 0x8000 ? -magnitude : magnitude;
}

inline int kv_truncated(int value, int bits) {
  const int magnitude = std::abs(value) & -(1 << (8 - bits));
  return value < 0 ? -magnitude : magnitude;
}

inline int kv_value(const KvUnits& unit, int lane, int depth) {
  const int row = depth / 4, byte = 4 * lane + depth % 4, shift = row & 4;
  const int high = (unit.codes[(row & 3) * 64 + byte] >> shift & 15) - 16 * (unit.codes[256 + byte] >> row & 1);
  const int low = unit.lows ? unit.lows[(row & 3) * 64 + byte] >> shift & 15 : 0;
  return 16 * high + low;
}

// Where there are no lows the value must be a multiple of 16.
inline void set_kv_value(const KvUnits& unit, int lane, int depth, int value) {
  const int row = depth / 4, byte = 4 * lane + depth % 4, shift = row & 4, high = value >> 4;
  const auto nibble = [shift](uint8_t& in, int four) {
    in = static_cast<uint8_t>((in & ~(15 << shift)) | (four & 15) << shift);
  };
  uint8_t& signs = unit.codes[256 + byte];
  nibble(unit.codes[(row & 3) * 64 + byte], high);
  signs = static_cast<uint8_t>((signs & ~(1 << row)) | (value < 0) << row);
  if (unit.lows) nibble(unit.lows[(row & 3) * 64 + byte], value);
}

inline int kv_exponent(const uint8_t* exponents, int lane) {
  return (exponents[lane & 7] >> (lane / 8 * 4) & 15) | (exponents[8 + lane / 8] >> (lane & 7) & 1) << 4;
}

inline void set_kv_exponent(uint8_t* exponents, int lane, int field) {
  uint8_t &nibbles = exponents[lane & 7], &bits = exponents[8 + lane / 8];
  const int shift = lane / 8 * 4, place = lane & 7;
  nibbles = static_cast<uint8_t>((nibbles & ~(15 << shift)) | (field & 15) << shift);
  bits = static_cast<uint8_t>((bits & ~(1 << place)) | (field >> 4) << place);
}

// The number that a value stands for, exactly: it has at most eight bits, none below FP16's last.
inline uint16_t kv_half(int value, int exponent) {
  const auto power = static_cast<uint32_t>(std::max(exponent, 1) - 22 + 127);
  return float_to_fp16(static_cast<float>(value) * std::bit_cast<float>(power << 23));
}

}  // namespace tilepress
