#include "kernels/attend_f32_bfp_bfp/attend_block.h"

namespace tilepress {
namespace {

struct PlainUnit {
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

  // sums [vectors, 16] += the unit's values · those of each vector, which lie `stride` apart
  template <int vectors, class Byte>
  static void dot(const KvBlock& unit, const Byte* x, int64_t stride, int32_t (*sums)[kKvLanes]) {
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

  template <int rows>
  static void score(const KvBlock& first, int64_t groups, const KvQueries& queries, float scaling, float* scores) {
    for (int row = 0; row < rows; ++row) {
      for (int lane = 0; lane < kKvLanes; ++lane) scores[row * kKvSegment + lane] = 0;
    }
    for (int64_t group = 0; group < groups; ++group) {
      const KvBlock unit = unit_of(first, group);
      const KvQueries q = queries_from(queries, group);
      int32_t sums[rows + 1][kKvLanes] = {};
      dot<rows + 1>(unit, q.bytes, kKvGroup, sums);
      for (int row = 0; row < rows; ++row) {
        for (int lane = 0; lane < kKvLanes; ++lane) sums[row][lane] += 3 * sums[row + 1][lane];
        add(sums[row], unit, q.units[row], scores + row * kKvSegment);
      }
    }
    for (int row = 0; row < rows; ++row) {
      for (int lane = 0; lane < kKvLanes; ++lane) scores[row * kKvSegment + lane] *= scaling;
    }
  }

  template <int rows>
  static void mix(const KvBlock& first, int64_t units, const KvWeights& p, float* out, int64_t stride) {
    for (int64_t at = 0; at < units; ++at, out += stride) {
      const KvBlock unit = unit_of(first, at);
      int32_t sums[rows][kKvLanes] = {};
      dot<rows>(unit, p.values, kKvSegment, sums);
      for (int row = 0; row < rows; ++row) add(sums[row], unit, p.units[row * kKvSegmentBlocks], out + row * kKvLanes);
    }
  }

  static void add(const int32_t* sums, const KvBlock& of, float unit, float* out) {
    float units[kKvLanes];
    lane_units(of.exponents, of.lows != nullptr, units);
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
