// Keys and values in block floating point: where their bits lie, and the kernels on them. No other place knows.
//
// A unit is 16 lanes of 32 values that share an exponent and are summed over: of keys 16 tokens by 32 channels, of
// values 16 channels by 32 tokens. A value is an integer from -255 to 255, kept as 16 * high + low with high from -16
// to 15 (five bits) and low from 0 to 15; narrow units have no lows, and mean 16 * high.
//
// Row r of a unit holds values 4r to 4r + 3 of each lane, lane after lane: a vector of 64 bytes, as dot products take
// them. Rows 0 to 3 and 4 to 7 share the bytes of four vectors, in their low and high nibbles; bits r of a fifth are
// the signs of row r. Lows are four vectors alike. Exponents are FP16's fields, five bits: nibbles of lanes 0 to 7 and
// 8 to 15 in eight bytes, and a bit each in two more.
//
// A block is 32 tokens of a head: units of keys, first those of the first 16 tokens, and then units of values.
#pragma once

#include <cstdint>

namespace tilepress {

inline constexpr int kKvLanes = 16, kKvGroup = 32, kKvRows = 8;
inline constexpr int64_t kKvTokens = 32;  // of a block
inline constexpr int64_t kKvUnitCodes = 320, kKvUnitLows = 256, kKvUnitExponents = 10;

// Units of keys in a block, and as many of values.
constexpr int64_t kv_units(int64_t channels) { return channels / kKvLanes; }

// The keys or the values of a block.
struct KvBlock {
  const uint8_t *codes, *lows, *exponents;  // lows may be null
};

// Queries as integers, 128 * high + low (digits of quantize_bfp); of each group of channels their sum and what 1 stands for.
struct KvQueries {
  const int8_t *high, *low;  // [rows, channels]
  const int32_t* sums;       // [rows, channels / 32], units alike
  const float* units;
  int64_t rows;
};

// Weights of one block's tokens; of each row their sum and what 1 stands for.
struct KvWeights {
  const uint8_t* values;  // [rows, stride], 32 of each row
  int64_t stride;
  const int32_t* sums;  // [rows, unit_stride], one of each row; units alike
  const float* units;
  int64_t unit_stride, rows;
};

// scores [rows, stride]: 32 of each row = scaling * query · key, group after group.
using KvScores = void(const KvBlock& keys, int64_t channels, const KvQueries&, float scaling, float* scores,
                      int64_t stride);

// out [rows, channels] += weights · values.
using KvMix = void(const KvBlock& values, int64_t channels, const KvWeights&, float* out);

// Weights e^(score - largest), in groups of 32 of which `count` is a multiple, as integers; of each group their sum and
// what 1 stands for. To the bit as kernels/attention_reference.py has it; `largest` is not below any score.
using KvWeigh = void(const float* scores, int64_t count, float largest, uint8_t* values, int32_t* sums, float* units);

}  // namespace tilepress
