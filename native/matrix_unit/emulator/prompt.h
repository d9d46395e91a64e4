// Left operands and accumulators of prompts in plain C++.
#pragma once

#include "attention/bfp_page.h"
#include "attention/prompt_tiles.h"
#include "matrix_unit/emulator/bf16.h"

namespace tilepress {
namespace {

struct PlainRows {
  static void highs(const ConstKvUnits& unit, uint16_t* to) {
    set(unit, to, [&](int byte, int row) {
      const int sign = unit.codes[256 + byte % 64] >> row & 1;
      return 16 * ((unit.codes[byte] >> (row & 4) & 15) - 16 * sign);
    });
  }
  static void lows(const ConstKvUnits& unit, uint16_t* to) {
    set(unit, to, [&](int byte, int row) { return unit.lows[byte] >> (row & 4) & 15; });
  }

 private:
  template <class Value>
  static void set(const ConstKvUnits& unit, uint16_t* to, const Value& value) {
    float units[kKvLanes];
    lane_units(unit.exponents, true, units);
    for (int i = 0; i < kKvLanes * kKvGroup; ++i) {
      const int lane = i / kKvGroup, row = i % kKvGroup / 4, byte = (row & 3) * 64 + 4 * lane + i % 4;
      const float exact = static_cast<float>(value(byte, row)) * units[lane];
      to[i] = static_cast<uint16_t>(std::bit_cast<uint32_t>(exact) >> 16);
    }
  }
};

class PlainLanes {
 public:
  void zero() { load(nullptr); }
  void load(const float* from) {
    for (int i = 0; i < kAll; ++i) of_[i] = from ? from[i] : 0.0f;
  }
  void store(float* to) const {
    for (int i = 0; i < kAll; ++i) to[i] = of_[i];
  }
  void add(const float* products) {
    for (int i = 0; i < kAll; ++i) of_[i] += products[i];
  }
  void store_scaled(float* to, float factor, float* largest) const {
    for (int i = 0; i < kAll; ++i) {
      to[i] = of_[i] * factor;
      if (largest) largest[i % kTileRows] = to[i] > largest[i % kTileRows] ? to[i] : largest[i % kTileRows];
    }
  }

 private:
  static constexpr int kAll = kKvLanes * kTileRows;
  float of_[kAll];
};

using PromptUnit = Bf16Unit;
using PromptRows = PlainRows;
using PromptSums = PlainLanes;

}  // namespace
}  // namespace tilepress
