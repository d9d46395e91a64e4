// Variants 3 and 4: tables of sums, and of products.
#pragma once

#include <algorithm>

#include "problem.h"

namespace short_mantissas {

// How many products or table entries of at most `largest` an int8 adds up.
constexpr int fit_int8(int largest) { return 127 / largest; }

// Tables of sums: four activations have sixteen sums, which with at most four bits fit int8; one bit of four weights
// is the number of one of them. Sixteen neurons look up at once.
struct SumTables {
  static constexpr const char* kName = "tables of sums, looked up by weights' bits";
  static constexpr int kBlock = 32;

  struct X {
    X(const Row& row, int) : row(row) {
      for (int i = 0; i < 16 * kInputs / 4; ++i) {
        int sum = 0;
        for (int j = 0; j < 4; ++j) sum += (i >> j & 1) * row.x[i / 16 * 4 + j];
        tables[i / 16][i % 16] = static_cast<int8_t>(sum);
      }
    }
    const Row& row;
    int8_t tables[kInputs / 4][16];
  };

  static Bytes pack(const Problem& problem) {
    Bytes packed;
    for (int block = 0; block < kNeurons; block += kBlock) {
      for (int first = 0; first < kInputs; first += kSegment) {
        for (int bit = 3; bit >= 0; --bit) {
          for (int four = first; four < first + kSegment; four += 4) {
            const auto number = [&](int neuron) {
              int bits = 0;
              for (int i = 0; i < 4; ++i) bits |= (problem.at(neuron, four + i) >> bit & 1) << i;
              return bits;
            };
            for (int i = 0; i < 16; ++i) packed.push_back(nibbles(number(block + i), number(block + 16 + i)));
          }
        }
      }
    }
    return packed;
  }

  template <int mantissa>
  static void multiply(const Block& block, const X& x, float* y) {
    const uint8_t* packed = block.packed;
    float32x4_t totals[kBlock / 4] = {};
    constexpr int kTogether = std::min(16, fit_int8(4 * ((1 << mantissa) - 1)) & ~1);
    for (int segment = 0; segment < kSegments; ++segment) {
      int16x8_t sums[4] = {};
      for (int bit = 3; bit >= 0; --bit) {
        int16x8_t plane[4] = {};
        for (int four = 0; four < 16;) {
          int8x16_t low = vdupq_n_s8(0), high = vdupq_n_s8(0);
          for (const int end = std::min(16, four + kTogether); four < end; ++four, packed += 16) {
            const int8x16_t table = vld1q_s8(x.tables[16 * segment + four]);
            const uint8x16_t numbers = vld1q_u8(packed);
            __builtin_prefetch(packed + 1024);
            low = vaddq_s8(low, vqtbl1q_s8(table, vandq_u8(numbers, vdupq_n_u8(15))));
            high = vaddq_s8(high, vqtbl1q_s8(table, vshrq_n_u8(numbers, 4)));
          }
          plane[0] = vaddw_s8(plane[0], vget_low_s8(low)), plane[1] = vaddw_high_s8(plane[1], low);
          plane[2] = vaddw_s8(plane[2], vget_low_s8(high)), plane[3] = vaddw_high_s8(plane[3], high);
        }
        for (int i = 0; i < 4; ++i) {
          sums[i] = bit == 3 ? vnegq_s16(plane[i]) : vaddq_s16(vaddq_s16(sums[i], sums[i]), plane[i]);
        }
      }
      for (int i = 0; i < 4; ++i) {
        const float* scales = block.scales + segment * kBlock + 8 * i;
        float32x4_t &low = totals[2 * i], &high = totals[2 * i + 1];
        low = finish(vmovl_s16(vget_low_s16(sums[i])), x.row.units[segment], scales, low);
        high = finish(vmovl_high_s16(sums[i]), x.row.units[segment], scales + 4, high);
      }
    }
    std::memcpy(y, totals, sizeof(totals));
  }
};

// Tables of products: an activation has sixteen products with int4, which with at most four bits fit int8. Weights
// of an input lie side by side, 128 neurons in 64 bytes, so that those of activations that are zero are never read.
struct ProductTables {
  static constexpr const char* kName = "tables of products, zeros skipped";
  static constexpr int kBlock = 128;

  struct X {
    X(const Row& row, int) : row(row) {
      for (int input = 0; input < kInputs; ++input) {
        if (input % kSegment == 0) begins[input / kSegment] = static_cast<int>(inputs.size());
        if (row.x[input]) inputs.push_back(input);
      }
      begins[kSegments] = static_cast<int>(inputs.size());
      look_ahead(inputs, kInputs);
      for (int i = 0; i < 31 * 16; ++i) {
        tables[i / 16][i % 16] = static_cast<int8_t>((i / 16 - 15) * (i % 16 < 8 ? i % 16 : i % 16 - 16));
      }
    }
    const int8_t* table(int input) const { return tables[row.x[input] + 15]; }
    const Row& row;
    std::vector<int> inputs;
    int begins[kSegments + 1];
    int8_t tables[31][16];
  };

  static Bytes pack(const Problem& problem) {
    Bytes packed;
    for (int block = 0; block < kNeurons; block += kBlock) {
      for (int input = 0; input < kInputs; ++input) {
        for (int byte = 0; byte < 64; ++byte) {
          const int neuron = block + byte / 16 * 32 + byte % 16;
          packed.push_back(nibbles(problem.at(neuron, input), problem.at(neuron + 16, input)));
        }
      }
    }
    return packed;
  }

  // The products of `count` activations, added up as bytes.
  template <int count>
  [[gnu::always_inline]] static void add(const uint8_t* packed, const X& x, int first, int16x8_t (&sums)[8]) {
    for (int i = 0; i < count; ++i) __builtin_prefetch(packed + 64 * x.inputs[first + i + kAhead]);
    for (int part = 0; part < 2; ++part) {
      int8x16_t low, high;
      for (int i = 0; i < count; ++i) {
        const int input = x.inputs[first + i];
        const int8x16_t table = vld1q_s8(x.table(input));
        const uint8x16_t pairs = vld1q_u8(packed + 64 * input + 16 * part);
        const int8x16_t lower = vqtbl1q_s8(table, vandq_u8(pairs, vdupq_n_u8(15)));
        const int8x16_t upper = vqtbl1q_s8(table, vshrq_n_u8(pairs, 4));
        low = i ? vaddq_s8(low, lower) : lower;
        high = i ? vaddq_s8(high, upper) : upper;
      }
      int16x8_t* to = sums + 4 * part;
      to[0] = vaddw_s8(to[0], vget_low_s8(low)), to[1] = vaddw_high_s8(to[1], low);
      to[2] = vaddw_s8(to[2], vget_low_s8(high)), to[3] = vaddw_high_s8(to[3], high);
    }
  }

  template <int mantissa>
  static void multiply(const Block& block, const X& x, float* y) {
    const uint8_t* packed = block.packed;
    float32x4_t totals[kBlock / 4] = {};
    constexpr int kTogether = fit_int8(8 * ((1 << mantissa) - 1));
    for (int segment = 0; segment < kSegments; ++segment) {
      if (x.begins[segment] == x.begins[segment + 1]) continue;
      for (int side = 0; side < 2; ++side) {  // of 64 neurons: for all 128 there are not registers enough
        int16x8_t sums[8] = {};
        int i = x.begins[segment];
        const int end = x.begins[segment + 1];
        for (; i + kTogether <= end; i += kTogether) add<kTogether>(packed + 32 * side, x, i, sums);
        for (; i < end; ++i) add<1>(packed + 32 * side, x, i, sums);
        for (i = 0; i < 8; ++i) {
          const float* scales = block.scales + segment * kBlock + 64 * side + 8 * i;
          float32x4_t &low = totals[16 * side + 2 * i], &high = totals[16 * side + 2 * i + 1];
          low = finish(vmovl_s16(vget_low_s16(sums[i])), x.row.units[segment], scales, low);
          high = finish(vmovl_high_s16(sums[i]), x.row.units[segment], scales + 4, high);
        }
      }
    }
    std::memcpy(y, totals, sizeof(totals));
  }
};

}  // namespace short_mantissas
