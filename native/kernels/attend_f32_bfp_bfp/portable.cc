#include "kernels/attend_f32_bfp_bfp/attend_block.h"

namespace tilepress {
namespace {

struct PlainUnit {
  static void lane_units(const uint8_t* exponents, bool wide, float* units) {
    tilepress::lane_units(exponents, wide, units);
  }

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

  // sums [16] += x[4r … 4r + 3] of each row · the unit's
  template <class Number>
  static void dot(const int8_t* bytes, const Number* x, int32_t factor, int32_t* sums) {
    for (int lane = 0; lane < kKvLanes; ++lane) {
      int32_t sum = 0;
      for (int i = 0; i < 4; ++i) sum += bytes[4 * lane + i] * x[i];
      sums[lane] += factor * sum;
    }
  }

  template <int rows>
  static void score(const KvBlock& unit, const float* units, const KvQueries& q, float* scores) {
    int32_t sums[rows][kKvLanes] = {};
    for (int part = 0; part < (unit.lows ? 2 : 1); ++part) {
      for (int r = 0; r < kKvRows; ++r) {
        int8_t bytes[4 * kKvLanes];
        part ? unpack_lows(unit.lows, r, bytes) : unpack(unit.codes, r, bytes);
        const int32_t factor = part || !unit.lows ? 1 : 16;
        for (int row = 0; row < rows; ++row) {
          dot(bytes, q.digits + 64 * row + 4 * r, factor << kDigitBits, sums[row]);
          dot(bytes, q.digits + 64 * row + 32 + 4 * r, factor, sums[row]);
        }
      }
    }
    for (int row = 0; row < rows; ++row) add(sums[row], units, q.units[row], scores + row * kKvSegment);
  }

  template <int rows>
  static void mix(const KvBlock& unit, const float* units, const KvWeights& p, float* out) {
    int32_t sums[rows][kKvLanes] = {};
    for (int part = 0; part < (unit.lows ? 2 : 1); ++part) {
      for (int r = 0; r < kKvRows; ++r) {
        int8_t bytes[4 * kKvLanes];
        part ? unpack_lows(unit.lows, r, bytes) : unpack(unit.codes, r, bytes);
        for (int row = 0; row < rows; ++row) {
          dot(bytes, p.values + row * kKvSegment + 4 * r, part || !unit.lows ? 1 : 16, sums[row]);
        }
      }
    }
    for (int row = 0; row < rows; ++row) add(sums[row], units, p.units[row * kKvSegmentBlocks], out + row * kKvLanes);
  }

  static void add(const int32_t* sums, const float* units, float unit, float* out) {
    for (int lane = 0; lane < kKvLanes; ++lane) out[lane] += static_cast<float>(sums[lane]) * (units[lane] * unit);
  }
};

}  // namespace

void portable::kv_scores(const KvBlock& keys, int64_t channels, const KvQueries& queries, float scaling,
                         float* scores) {
  score_block<PlainUnit>(keys, channels, queries, scaling, scores);
}

void portable::kv_mix(const KvBlock& values, int64_t channels, const KvWeights& weights, float* out) {
  mix_block<PlainUnit>(values, channels, weights, out);
}

}  // namespace tilepress
