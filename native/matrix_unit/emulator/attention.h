// Tiles and accumulators of attention in plain C++.
#pragma once

#include "attention/bfp_page.h"
#include "attention/bfp_tiles.h"
#include "matrix_unit/emulator/bf16.h"

namespace tilepress {
namespace {

uint16_t exact_bf16(float value) { return static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16); }

struct PlainTiles {
  static void highs(const uint8_t* codes, uint16_t* to) {
    for (int i = 0; i < kKvLanes * kKvGroup; ++i) {
      const Location at(i);
      const int sign = codes[256 + at.lane * 4 + at.byte % 4] >> at.row & 1;
      to[at.word] = exact_bf16(static_cast<float>(16 * ((codes[at.byte] >> at.shift & 15) - 16 * sign)));
    }
  }

  static void lows(const uint8_t* lows, uint16_t* to) {
    for (int i = 0; i < kKvLanes * kKvGroup; ++i) {
      const Location at(i);
      to[at.word] = exact_bf16(static_cast<float>(lows[at.byte] >> at.shift & 15));
    }
  }

  static void units(const uint8_t* exponents, float* to) { lane_units(exponents, true, to); }

  static void weights(const uint8_t* values, const float* units, int64_t rows, uint16_t* to) {
    __builtin_memset(to, 0, kMaxTileBytes);
    for (int64_t row = 0; row < rows; ++row) {
      for (int i = 0; i < kKvGroup; ++i) {
        const float value = static_cast<float>(values[row * kKvSegment + i]) * units[row * kKvSegmentPages];
        to[row * kKvGroup + i] = exact_bf16(value);
      }
    }
  }

 private:
  // Where value i / 16 of lane i % 16 is in a unit, and in a tile, whose rows have two values of each lane.
  struct Location {
    explicit Location(int i) : lane(i % kKvLanes), row(i / kKvLanes / 4), shift(row & 4) {
      const int depth = i / kKvLanes;
      byte = (row & 3) * 64 + 4 * lane + depth % 4;
      word = depth / 2 * 2 * kKvLanes + 2 * lane + depth % 2;
    }
    int lane, row, shift, byte, word;
  };
};

class PlainSums {
 public:
  PlainSums(const float* from, int64_t stride, int64_t rows) {
    for (int64_t i = 0; from && i < rows * kKvLanes; ++i) of_[i] = from[i / kKvLanes * stride + i % kKvLanes];
  }
  void store(float* to, int64_t stride, int64_t rows, float factor) const {
    for (int64_t i = 0; i < rows * kKvLanes; ++i) to[i / kKvLanes * stride + i % kKvLanes] = of_[i] * factor;
  }
  void add(const float* products, const float* units) {
    for (int i = 0; i < kTileRows * kKvLanes; ++i) of_[i] += products[i] * units[i % kKvLanes];
  }

 private:
  float of_[kTileRows * kKvLanes] = {};
};

using TileAttention = AttentionOnTiles<Bf16Unit, PlainTiles, PlainSums>;

}  // namespace
}  // namespace tilepress
