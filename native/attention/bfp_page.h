// Scores and outputs of one page, up to four rows at a time; `Unit` multiplies them. Products are exact: only the order
// of additions matters, and kernels/attention_reference.py specifies it.
#pragma once

#include "quantize/scales.h"
#include "tilepress/kv_bfp.h"

namespace tilepress {
namespace {

// What 1 stands for in each lane; wide: values of nine bits, with lows, otherwise of five.
inline void lane_units(const uint8_t* exponents, bool wide, float* units) {
  const uint32_t high = static_cast<uint32_t>(exponents[8] | exponents[9] << 8);
  for (int lane = 0; lane < kKvLanes; ++lane) {
    const uint32_t nibble = lane < 8 ? exponents[lane] & 15u : exponents[lane - 8] >> 4;
    const uint32_t field = most<uint32_t>(nibble | (high >> lane & 1) << 4, 1);
    units[lane] = std::bit_cast<float>((field + 127 - 15 - (wide ? 7 : 3)) << 23);
  }
}

// One set's queries, starting at a group of channels.
inline KvQueries queries_from(const KvQueries& all, int64_t group) {
  return {all.bytes + group * kKvVectors * kKvGroup, all.sums + group * kKvVectors, all.units + group * kKvSet,
          all.rows};
}

// Prefetches the same bytes of codes, and the exponents, two pages ahead. The hardware prefetcher misses them: only the
// keys or only the values of a page are read, `units` units.
inline void prefetch(const uint8_t* codes, int64_t bytes, const uint8_t* exponents, int64_t units) {
  constexpr int64_t kAhead = 2 * 2;  // a page has units of keys and of values
  for (int64_t i = 0; i < bytes; i += 64) __builtin_prefetch(codes + kAhead * units * kKvUnitCodes + i);
  __builtin_prefetch(exponents + kAhead * units * kKvUnitExponents);
}

// Up to four rows at a time.
template <class Work>
void in_sets(int64_t rows, const Work& work) {
  for (int64_t row = 0; row < rows; row += kKvSet) {
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
void score_page(const ConstKvUnits& keys, int64_t channels, const KvQueries& queries, float scaling, float* scores) {
  const int64_t groups = channels / kKvGroup;
  for (int half = 0; half < 2; ++half, scores += kKvLanes) {
    in_sets(queries.rows, [&]<int rows>(int64_t row) {
      Unit::template score<rows>(keys.unit(half * groups), groups, queries_from(queries, row / kKvSet * groups),
                                 scaling, scores + row * kKvSegment);
    });
  }
}

template <class Unit>
void mix_page(const ConstKvUnits& values, int64_t channels, const KvWeights& weights, float* out) {
  in_sets(weights.rows, [&]<int rows>(int64_t row) {
    const int64_t at = row * kKvSegmentPages;
    const KvWeights mine = {weights.values + row * kKvSegment, weights.sums + at, weights.units + at, rows};
    Unit::template mix<rows>(values, kv_units(channels), mine, out + row * kKvLanes, weights.rows * kKvLanes);
  });
}

}  // namespace
}  // namespace tilepress
