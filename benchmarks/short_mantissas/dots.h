// Variant 1: dot products of bytes.
#pragma once

#include <algorithm>

#include "problem.h"

namespace short_mantissas {

// Dot products of bytes, as the package has them: eight inputs of sixteen neurons are 64 bytes, four inputs in low
// and four in high nibbles. With `skip`, eight inputs that are all zero are neither read nor multiplied.
template <bool skip>
struct Dots {
  static constexpr const char* kName = skip ? "dots of bytes, zeros skipped by eights" : "dots of bytes";
  static constexpr int kBlock = 16;

  struct X {
    X(const Row& row, int) : row(row) {
      for (int eight = 0; eight < kInputs / 8; ++eight) {
        if (eight % (kSegment / 8) == 0) begins[eight / (kSegment / 8)] = static_cast<int>(eights.size());
        const bool used = std::any_of(row.x + 8 * eight, row.x + 8 * eight + 8, [](int8_t x) { return x; });
        if (used || !skip) eights.push_back(eight);
      }
      begins[kSegments] = static_cast<int>(eights.size());
      look_ahead(eights, kInputs / 8);
    }
    const Row& row;
    std::vector<int> eights;
    int begins[kSegments + 1];
  };

  static Bytes pack(const Problem& problem) {
    Bytes packed;
    for (int block = 0; block < kNeurons; block += kBlock) {
      for (int input = 0; input < kInputs; input += 8) {
        for (int byte = 0; byte < 64; ++byte) {
          const int neuron = block + byte / 4, first = input + byte % 4;
          packed.push_back(nibbles(problem.at(neuron, first), problem.at(neuron, first + 4)));
        }
      }
    }
    return packed;
  }

  template <int mantissa>
  static void multiply(const Block& block, const X& x, float* y) {
    const uint8_t* packed = block.packed;
    float32x4_t totals[kBlock / 4] = {};
    for (int segment = 0; segment < kSegments; ++segment) {
      if (x.begins[segment] == x.begins[segment + 1]) continue;
      int32x4_t sums[4] = {};
      for (int i = x.begins[segment]; i < x.begins[segment + 1]; ++i) {
        const int eight = skip ? x.eights[i] : i, later = skip ? x.eights[i + kAhead] : i + kAhead;
        const int8x16_t lanes = vcombine_s8(vld1_s8(x.row.x + 8 * eight), vdup_n_s8(0));
        const uint8_t* from = packed + 64 * eight;
        __builtin_prefetch(packed + 64 * later);
        for (int quarter = 0; quarter < 4; ++quarter, from += 16) {
          const uint8x16_t pairs = vld1q_u8(from);
          const int8x16_t low = vreinterpretq_s8_u8(vshlq_n_u8(pairs, 4));
          const int8x16_t high = vreinterpretq_s8_u8(vandq_u8(pairs, vdupq_n_u8(0xf0)));
          sums[quarter] = vdotq_laneq_s32(sums[quarter], low, lanes, 0);
          sums[quarter] = vdotq_laneq_s32(sums[quarter], high, lanes, 1);
        }
      }
      for (int quarter = 0; quarter < 4; ++quarter) {
        const float* scales = block.scales + segment * kBlock + 4 * quarter;
        totals[quarter] = finish(vshrq_n_s32(sums[quarter], 4), x.row.units[segment], scales, totals[quarter]);
      }
    }
    std::memcpy(y, totals, sizeof(totals));
  }
};

}  // namespace short_mantissas
