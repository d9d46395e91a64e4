// Scores and outputs of one block, over units as `Unit` multiplies them; in a nameless namespace for the reason that
// pack_block.h gives. Products are exact, so that only the order of additions counts: kernels/attention_reference.py.
#pragma once

#include "kernels/scales.h"

namespace tilepress {
namespace {

// What 1 stands for in each lane: of nine bits where there are lows, of five where there are none.
inline void lane_units(const uint8_t* exponents, bool wide, float* units) {
  const uint32_t high = static_cast<uint32_t>(exponents[8] | exponents[9] << 8);
  for (int lane = 0; lane < kKvLanes; ++lane) {
    const uint32_t nibble = lane < 8 ? exponents[lane] & 15u : exponents[lane - 8] >> 4;
    const uint32_t field = most<uint32_t>(nibble | (high >> lane & 1) << 4, 1);
    units[lane] = std::bit_cast<float>((field + 127 - 15 - (wide ? 7 : 3)) << 23);
  }
}

inline KvBlock unit_of(const KvBlock& block, int64_t unit) {
  return {block.codes + unit * kKvUnitCodes, block.lows ? block.lows + unit * kKvUnitLows : nullptr,
          block.exponents + unit * kKvUnitExponents};
}

// Up to four rows at a time.
template <class Work>
void in_fours(int64_t rows, const Work& work) {
  for (int64_t row = 0; row < rows; row += 4) {
    switch (rows - row) {
      case 1:
        work.template operator()<1>(row);
        break;
      case 2:
        work.template operator()<2>(row);
        break;
      case 3:
        work.template operator()<3>(row);
        break;
      default:
        work.template operator()<4>(row);
    }
  }
}

template <class Unit>
void score_block(const KvBlock& keys, int64_t channels, const KvQueries& queries, float scaling, float* scores) {
  const int64_t groups = channels / kKvGroup, all = queries.rows;
  for (int half = 0; half < 2; ++half, scores += kKvLanes) {
    for (int64_t row = 0; row < all; ++row) {
      for (int lane = 0; lane < kKvLanes; ++lane) scores[row * kKvSegment + lane] = 0;
    }
    for (int64_t group = 0; group < groups; ++group) {
      const KvBlock unit = unit_of(keys, half * groups + group);
      float units[kKvLanes];
      Unit::lane_units(unit.exponents, unit.lows != nullptr, units);
      in_fours(all, [&]<int rows>(int64_t row) {
        const int64_t at = group * all + row;
        Unit::template score<rows>(unit, units,
                                   {queries.digits + at * 2 * kKvGroup, queries.sums + at, queries.units + at, rows},
                                   scores + row * kKvSegment);
      });
    }
    for (int64_t row = 0; row < all; ++row) {
      for (int lane = 0; lane < kKvLanes; ++lane) scores[row * kKvSegment + lane] *= scaling;
    }
  }
}

template <class Unit>
void mix_block(const KvBlock& values, int64_t channels, const KvWeights& weights, float* out) {
  for (int64_t set = 0; set < kv_units(channels); ++set, out += weights.rows * kKvLanes) {
    const KvBlock unit = unit_of(values, set);
    float units[kKvLanes];
    Unit::lane_units(unit.exponents, unit.lows != nullptr, units);
    in_fours(weights.rows, [&]<int rows>(int64_t row) {
      const int64_t at = row * kKvSegmentBlocks;
      Unit::template mix<rows>(unit, units,
                               {weights.values + row * kKvSegment, weights.sums + at, weights.units + at, rows},
                               out + row * kKvLanes);
    });
  }
}

}  // namespace
}  // namespace tilepress
