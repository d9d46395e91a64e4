// Variant 2: bit planes.
#pragma once

#include "problem.h"

namespace short_mantissas {

// Bit by bit: 64 inputs of a neuron are four words, one of each bit. Every pair of planes is an `and` and a count of
// ones, once for positive and once for negative activations.
struct BitSerial {
  static constexpr const char* kName = "bit planes, ones counted";
  static constexpr int kBlock = 16;

  struct X {
    X(const Row& row, int mantissa) : row(row) {
      for (int input = 0; input < kInputs; ++input) {
        const int value = row.x[input], segment = input / kSegment;
        for (int bit = 0; bit < mantissa; ++bit) {
          const uint64_t one = static_cast<uint64_t>(std::abs(value) >> bit & 1) << input % kSegment;
          planes[segment][value < 0][bit] |= one;
        }
      }
    }
    const Row& row;
    uint64_t planes[kSegments][2][4] = {};
  };

  static Bytes pack(const Problem& problem) {
    std::vector<uint64_t> words;
    for (int block = 0; block < kNeurons; block += kBlock) {
      for (int first = 0; first < kInputs; first += kSegment) {
        for (int bit = 3; bit >= 0; --bit) {
          for (int neuron = block; neuron < block + kBlock; ++neuron) {
            uint64_t word = 0;
            for (int i = 0; i < kSegment; ++i) {
              word |= static_cast<uint64_t>(problem.at(neuron, first + i) >> bit & 1) << i;
            }
            words.push_back(word);
          }
        }
      }
    }
    Bytes packed(words.size() * 8);
    std::memcpy(packed.data(), words.data(), packed.size());
    return packed;
  }

  // Ones of each byte under all planes, the most significant first.
  template <int mantissa>
  static uint8x16_t count(uint64x2_t weights, const uint64x2_t* planes) {
    uint8x16_t sum = vdupq_n_u8(0);
    for (int bit = mantissa - 1; bit >= 0; --bit) {
      const uint8x16_t ones = vcntq_u8(vreinterpretq_u8_u64(vandq_u64(weights, planes[bit])));
      sum = bit == mantissa - 1 ? ones : vaddq_u8(vaddq_u8(sum, sum), ones);
    }
    return sum;
  }

  template <int mantissa>
  static void multiply(const Block& block, const X& x, float* y) {
    const uint8_t* packed = block.packed;
    float32x4_t totals[kBlock / 4] = {};
    for (int segment = 0; segment < kSegments; ++segment, packed += 8 * 4 * kBlock) {
      uint64x2_t positive[mantissa], negative[mantissa];
      for (int bit = 0; bit < mantissa; ++bit) {
        positive[bit] = vdupq_n_u64(x.planes[segment][0][bit]);
        negative[bit] = vdupq_n_u64(x.planes[segment][1][bit]);
      }
      __builtin_prefetch(packed + 2048);
      int32x4_t halves[8];
      for (int pair = 0; pair < 8; ++pair) {
        int16x8_t sum = vdupq_n_s16(0);
        for (int bit = 3; bit >= 0; --bit) {
          const uint64x2_t weights = vreinterpretq_u64_u8(vld1q_u8(packed + 128 * (3 - bit) + 16 * pair));
          const uint8x16_t more = count<mantissa>(weights, positive), less = count<mantissa>(weights, negative);
          const int16x8_t ones = vpaddlq_s8(vreinterpretq_s8_u8(vsubq_u8(more, less)));
          sum = bit == 3 ? vnegq_s16(ones) : vaddq_s16(vaddq_s16(sum, sum), ones);
        }
        halves[pair] = vpaddlq_s16(sum);
      }
      for (int quarter = 0; quarter < 4; ++quarter) {
        const int32x4_t dots = vpaddq_s32(halves[2 * quarter], halves[2 * quarter + 1]);
        const float* scales = block.scales + segment * kBlock + 4 * quarter;
        totals[quarter] = finish(dots, x.row.units[segment], scales, totals[quarter]);
      }
    }
    std::memcpy(y, totals, sizeof(totals));
  }
};

}  // namespace short_mantissas
