// Shared by score_f32_bfp_bfp and mix_f32_u8_bfp in plain C++.
#pragma once

#include "attention/bfp_page.h"

namespace tilepress {
namespace {

struct ScalarLanes {
  // Row r of the codes, or of the lows, as bytes: 4 of each lane.
  static void unpack(const uint8_t* codes, int row, int8_t* bytes) {
    for (int i = 0; i < 4 * kKvLanes; ++i) {
      const int nibble = codes[(row & 3) * 64 + i] >> (row & 4) & 15;
      bytes[i] = static_cast<int8_t>(nibble - 16 * (codes[256 + i] >> row & 1));
    }
  }
  static void unpack_lows(const uint8_t* lows, int row, int8_t* bytes) {
    for (int i = 0; i < 4 * kKvLanes; ++i) bytes[i] = static_cast<int8_t>(lows[(row & 3) * 64 + i] >> (row & 4) & 15);
  }

  // sums [vectors, 16] += unit · vectors, which are `stride` apart
  template <int vectors, class Byte>
  static void dot(const ConstKvUnits& unit, const Byte* x, int64_t stride, int32_t (*sums)[kKvLanes]) {
    for (int part = 0; part < (unit.lows ? 2 : 1); ++part) {
      const int32_t factor = part || !unit.lows ? 1 : 16;
      for (int r = 0; r < kKvRows; ++r) {
        int8_t bytes[4 * kKvLanes];
        part ? unpack_lows(unit.lows, r, bytes) : unpack(unit.codes, r, bytes);
        for (int i = 0; i < vectors; ++i) dot_four(bytes, x + i * stride + 4 * r, factor, sums[i]);
      }
    }
  }

  template <class Byte>
  static void dot_four(const int8_t* bytes, const Byte* x, int32_t factor, int32_t* sums) {
    for (int lane = 0; lane < kKvLanes; ++lane) {
      int32_t sum = 0;
      for (int i = 0; i < 4; ++i) sum += bytes[4 * lane + i] * x[i];
      sums[lane] += factor * sum;
    }
  }

  static void add(const int32_t* sums, const ConstKvUnits& of, float unit, float* out) {
    float units[kKvLanes];
    lane_units(of.exponents, of.lows != nullptr, units);
    for (int lane = 0; lane < kKvLanes; ++lane) out[lane] += static_cast<float>(sums[lane]) * (units[lane] * unit);
  }
};

}  // namespace
}  // namespace tilepress
