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

#include "tilepress/linear.h"

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

// The same, to be written.
struct KvUnits {
  uint8_t *codes, *lows, *exponents;

  KvUnits unit(int64_t index) const {
    return {codes + index * kKvUnitCodes, lows ? lows + index * kKvUnitLows : nullptr,
            exponents + index * kKvUnitExponents};
  }
};

// Distances that kernels take for granted, so that they need not compute addresses: rows of scores and weights lie a
// segment of tokens apart, sums and units of weights a segment's blocks.
inline constexpr int64_t kKvSegmentBlocks = 32, kKvSegment = kKvSegmentBlocks * kKvTokens;

// Queries are integers from -255 to 255, a bit too many for bytes: a set of up to four rows is one vector of bytes more
// than it has rows (kNineBitRows).
inline constexpr int kKvSet = kNineBitRows, kKvVectors = kNineBitLines;
constexpr int64_t kv_sets(int64_t rows) { return (rows + kKvSet - 1) / kKvSet; }

// Of each set and group of channels; a set that is not full has no use for its last vectors and units.
struct KvQueries {
  const int8_t* bytes;  // [sets, channels / 32, kKvVectors, 32]
  const int32_t* sums;  // [sets, channels / 32, kKvVectors]: of each vector's bytes
  const float* units;   // [sets, channels / 32, kKvSet]: what 1 stands for in each row
  int64_t rows;
};

// Weights of one block's tokens; of each row their sum and what 1 stands for.
struct KvWeights {
  const uint8_t* values;
  const int32_t* sums;
  const float* units;
  int64_t rows;
};

// scores: 32 of each row = scaling * query · key, group after group.
TILEPRESS_OPERATION(score_f32_bfp_bfp,
                    void(const KvBlock& keys, int64_t channels, const KvQueries&, float scaling, float* scores));

// out [channels / 16, rows, 16] += weights · values.
TILEPRESS_OPERATION(mix_f32_u8_bfp, void(const KvBlock& values, int64_t channels, const KvWeights&, float* out));

// Many rows at a time, for matrix units: bf16 holds queries, weights and whole or half values exactly, units and all,
// as these are powers of two. Rows come in row panels of 16, of which the last may lack some.
struct KvQueryTiles {
  const uint16_t* tiles;  // [row panels, channels / 32, 16, 32]; 0 where rows are missing
  int64_t rows;
};
inline constexpr int64_t kKvTileBlocks = 8;  // at most as many at a time
constexpr int64_t kv_row_panels(int64_t rows) { return (rows + kTileRows - 1) / kTileRows; }

// A unit's values as tiles of highs, in steps of 16, and of lows, where there are any; what 1 stands for in each lane.
struct alignas(kVectorBytes) KvTileUnit {
  uint16_t highs[kMaxTileBytes / 2], lows[kMaxTileBytes / 2];
  float units[kKvLanes];
  bool has_lows;
};

// Bytes that kernels of tiles want to work in, from a line on: units that share sums, and all weights.
constexpr int64_t kv_tile_scratch(int64_t channels, int64_t rows) {
  const int64_t groups = channels / kKvGroup, units = groups < kKvTileBlocks ? kKvTileBlocks : groups;
  return units * int64_t{sizeof(KvTileUnit)} + kv_row_panels(rows) * kKvTileBlocks * kMaxTileBytes;
}

// The same as KvScores and KvMix, to the bit, of `count` blocks that follow each other.
TILEPRESS_OPERATION(score_f32_bf16_bfp, void(const KvBlock* keys, int64_t count, int64_t channels, const KvQueryTiles&,
                                             float scaling, float* scores, uint8_t* scratch));
TILEPRESS_OPERATION(mix_f32_bf16_bfp, void(const KvBlock* values, int64_t count, int64_t channels, const KvWeights&,
                                           float* out, uint8_t* scratch));

// Weights e^(score - largest), in groups of 32 of which `count` is a multiple, as integers; of each group their sum and
// what 1 stands for. To the bit as kernels/attention_reference.py has it; `largest` is not below any score.
TILEPRESS_OPERATION(softmax_u8_f32, void(const float* scores, int64_t count, float largest, uint8_t* values,
                                         int32_t* sums, float* units));

// Values rounded to FP16, nearest even, saturating; where there are offsets, less these and rounded once more.
TILEPRESS_OPERATION(convert_f16_f32, void(const float* values, const float* offsets, int64_t count, uint16_t* halves));

// Where a token is one of a block's 32, and the bits of its magnitudes.
struct KvToken {
  int place, bits;
};

// A token's key becomes integers under exponents of its own, or one that is there is cut to fewer bits.
TILEPRESS_OPERATION(quantize_key_bfp, void(const KvUnits& keys, int64_t channels, const KvToken&, const uint16_t* key));
TILEPRESS_OPERATION(truncate_key_bfp, void(const KvUnits& keys, int64_t channels, const KvToken&));

// The last tokens' values in FP16, one's so far from the next's, and their bits: those from `begin` to `end` have
// fewer.
struct KvOpenValues {
  const uint16_t* halves;
  int64_t count, stride;
  int64_t begin, end;
  int fewer, bits;
};

// The last of the open values becomes integers under exponents that the others have as well; where one rises, they are
// rounded anew. Or a token's values that are there are cut to fewer bits.
TILEPRESS_OPERATION(quantize_value_bfp, void(const KvUnits& values, int64_t channels, const KvOpenValues&));
TILEPRESS_OPERATION(truncate_value_bfp, void(const KvUnits& values, int64_t channels, const KvToken&));

}  // namespace tilepress
