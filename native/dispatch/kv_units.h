// Lanes and columns of a unit (tilepress/kv.h), and FP16 numbers as integers under a shared exponent. Loops of known
// length, for compilers to vectorise.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <cstring>

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

// All 32 values of a lane.
inline void kv_lane(const KvUnits& unit, int lane, int32_t* values) {
  for (int i = 0; i < kKvGroup; ++i) {
    const int row = i / 4, byte = (row & 3) * 64 + 4 * lane + i % 4, shift = row & 4;
    const int sign = unit.codes[256 + 4 * lane + i % 4] >> row & 1;
    values[i] = 16 * (unit.codes[byte] >> shift & 15) - 256 * sign + (unit.lows ? unit.lows[byte] >> shift & 15 : 0);
  }
}

// Where there are no lows values must be multiples of 16. Rows r and r + 4 share their bytes, of which nothing stays.
inline void set_kv_lane(const KvUnits& unit, int lane, const int32_t* values) {
  constexpr int kHalf = kKvGroup / 2;
  uint8_t codes[kHalf], lows[kHalf], signs[4] = {};
  for (int i = 0; i < kHalf; ++i) {
    codes[i] = static_cast<uint8_t>((values[i] >> 4 & 15) | (values[i + kHalf] & 0xf0));
    lows[i] = static_cast<uint8_t>((values[i] & 15) | (values[i + kHalf] & 15) << 4);
  }
  for (int row = 0; row < kKvRows; ++row) {
    for (int i = 0; i < 4; ++i) signs[i] = static_cast<uint8_t>(signs[i] | (values[4 * row + i] < 0) << row);
  }
  for (int row = 0; row < 4; ++row) {
    std::memcpy(unit.codes + 64 * row + 4 * lane, codes + 4 * row, 4);
    if (unit.lows) std::memcpy(unit.lows + 64 * row + 4 * lane, lows + 4 * row, 4);
  }
  std::memcpy(unit.codes + 256 + 4 * lane, signs, 4);
}

// A row's words, one of each lane, and where in them the bits of a value lie.
struct KvColumn {
  explicit KvColumn(int depth)
      : row(depth / 4 & 3), shift(8 * (depth % 4) + (depth / 4 & 4)), sign(8 * (depth % 4) + depth / 4) {}
  int row, shift, sign;

  static void read(const uint8_t* from, uint32_t* words) { std::memcpy(words, from, 4 * kKvLanes); }
  static void write(uint8_t* to, const uint32_t* words) { std::memcpy(to, words, 4 * kKvLanes); }
};

// Value `depth` of every lane.
inline void kv_column(const KvUnits& unit, int depth, int32_t* values) {
  const KvColumn at(depth);
  uint32_t codes[kKvLanes], signs[kKvLanes], lows[kKvLanes] = {};
  KvColumn::read(unit.codes + 64 * at.row, codes);
  KvColumn::read(unit.codes + 256, signs);
  if (unit.lows) KvColumn::read(unit.lows + 64 * at.row, lows);
  for (int lane = 0; lane < kKvLanes; ++lane) {
    const uint32_t high = (codes[lane] >> at.shift & 15) - (signs[lane] >> at.sign & 1) * 16;
    values[lane] = static_cast<int32_t>(high * 16 + (lows[lane] >> at.shift & 15));
  }
}

// Where there are no lows values must be multiples of 16.
inline void set_kv_column(const KvUnits& unit, int depth, const int32_t* values) {
  const KvColumn at(depth);
  uint32_t words[kKvLanes];
  const auto set = [&](uint8_t* vector, int shift, uint32_t mask, const auto& bits) {
    KvColumn::read(vector, words);
    for (int lane = 0; lane < kKvLanes; ++lane) {
      words[lane] = (words[lane] & ~(mask << shift)) | (bits(static_cast<uint32_t>(values[lane])) & mask) << shift;
    }
    KvColumn::write(vector, words);
  };
  set(unit.codes + 64 * at.row, at.shift, 15, [](uint32_t value) { return value >> 4; });
  set(unit.codes + 256, at.sign, 1, [](uint32_t value) { return value >> 31; });
  if (unit.lows) set(unit.lows + 64 * at.row, at.shift, 15, [](uint32_t value) { return value; });
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
