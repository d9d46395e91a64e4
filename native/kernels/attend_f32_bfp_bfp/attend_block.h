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
void score_block(const KvBlock& keys, int64_t channels, const KvQueries& queries, float scaling, float* scores,
                 int64_t stride) {
  const int64_t groups = channels / kKvGroup;
  for (int half = 0; half < 2; ++half, scores += kKvLanes) {
    for (int64_t row = 0; row < queries.rows; ++row) {
      for (int lane = 0; lane < kKvLanes; ++lane) scores[row * stride + lane] = 0;
    }
    for (int64_t group = 0; group < groups; ++group) {
      const KvBlock unit = unit_of(keys, half * groups + group);
      float units[kKvLanes];
      Unit::lane_units(unit.exponents, unit.lows != nullptr, units);
      in_fours(queries.rows, [&]<int rows>(int64_t row) {
        const int64_t at = row * channels + group * kKvGroup;
        Unit::template score<rows>(unit, units,
                                   {queries.high + at, queries.low + at, queries.sums + row * groups + group,
                                    queries.units + row * groups + group, rows},
                                   channels, scores + row * stride, stride);
      });
    }
    for (int64_t row = 0; row < queries.rows; ++row) {
      for (int lane = 0; lane < kKvLanes; ++lane) scores[row * stride + lane] *= scaling;
    }
  }
}

template <class Unit>
void mix_block(const KvBlock& values, int64_t channels, const KvWeights& weights, float* out) {
  for (int64_t set = 0; set < kv_units(channels); ++set) {
    const KvBlock unit = unit_of(values, set);
    float units[kKvLanes];
    Unit::lane_units(unit.exponents, unit.lows != nullptr, units);
    in_fours(weights.rows, [&]<int rows>(int64_t row) {
      const int64_t at = row * weights.unit_stride;
      Unit::template mix<rows>(unit, units,
                               {weights.values + row * weights.stride, weights.stride, weights.sums + at,
                                weights.units + at, weights.unit_stride, rows},
                               out + row * channels + set * kKvLanes, channels);
    });
  }
}

}  // namespace
}  // namespace tilepress
