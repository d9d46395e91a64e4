// Keys and values in block floating point: their byte layout, and the kernels on them. No other file knows the layout.
//
// A unit is 16 lanes of 32 values; the 32 values of a lane share an exponent and are summed over. A unit of keys is 16
// tokens by 32 channels, a unit of values 16 channels by 32 tokens. A value is an integer from -255 to 255, stored as
// 16 * high + low with high from -16 to 15 (five bits) and low from 0 to 15. Narrow units have no lows: 16 * high.
//
// Row r of a unit holds values 4r to 4r + 3 of each lane, lane after lane: 64 bytes, as dot products take them. Rows 0
// to 3 are the low nibbles of four 64-byte vectors, rows 4 to 7 their high nibbles; bits r of a fifth vector are the
// signs of row r. Lows are four vectors alike. Exponents are FP16's five-bit fields: eight bytes with the low nibbles
// of lanes 0 to 7 and 8 to 15, and two bytes with the fifth bits.
//
// A page is 32 tokens of a head: units of keys, first those of the first 16 tokens, then units of values. A token's
// place in its page is its slot.
#pragma once

#include <cstdint>

#include "tilepress/linear.h"

namespace tilepress {

inline constexpr int kKvLanes = 16, kKvGroup = 32, kKvRows = 8;
inline constexpr int64_t kKvPageTokens = 32;
inline constexpr int64_t kKvUnitCodes = 320, kKvUnitLows = 256, kKvUnitExponents = 10;  // bytes

// Units of keys in a page, and as many of values.
constexpr int64_t kv_units(int64_t channels) { return channels / kKvLanes; }

// Consecutive units, to be read.
struct ConstKvUnits {
  const uint8_t *codes, *lows, *exponents;  // lows may be null

  ConstKvUnits unit(int64_t index) const {
    return {codes + index * kKvUnitCodes, lows ? lows + index * kKvUnitLows : nullptr,
            exponents + index * kKvUnitExponents};
  }
};

// The same, to be written.
struct KvUnits {
  uint8_t *codes, *lows, *exponents;

  KvUnits unit(int64_t index) const {
    return {codes + index * kKvUnitCodes, lows ? lows + index * kKvUnitLows : nullptr,
            exponents + index * kKvUnitExponents};
  }
  operator ConstKvUnits() const { return {codes, lows, exponents}; }
};

// Fixed strides, so that kernels compute no addresses: rows of scores and weights are a segment of tokens apart, sums
// and units of weights a segment of pages.
inline constexpr int64_t kKvSegmentPages = 32, kKvSegment = kKvSegmentPages * kKvPageTokens;

// Queries are integers from -255 to 255, one bit too many for int8: a set of up to four rows is stored as one int8
// vector more than it has rows (kNineBitRows).
inline constexpr int kKvSet = kNineBitRows, kKvVectors = kNineBitLines;
constexpr int64_t kv_sets(int64_t rows) { return (rows + kKvSet - 1) / kKvSet; }

// By set and group of channels. In a set of fewer than four rows the last vectors and units are unused.
struct KvQueries {
  const int8_t* bytes;  // [sets, channels / 32, kKvVectors, 32]
  const int32_t* sums;  // [sets, channels / 32, kKvVectors]: of each vector's bytes
  const float* units;   // [sets, channels / 32, kKvSet]: what 1 stands for in each row
  int64_t rows;
};

// Softmax weights of one page's tokens; for each row their sum and what 1 stands for.
struct KvWeights {
  const uint8_t* values;
  const int32_t* sums;
  const float* units;
  int64_t rows;
};

// A page: scores [rows, 32], rows kKvSegment apart, = scaling * query · key, group after group.
TILEPRESS_OPERATION(score_f32_bfp_bfp,
                    void(const ConstKvUnits& keys, int64_t channels, const KvQueries&, float scaling, float* scores));

// A page: out [channels / 16, rows, 16] += weights · values.
TILEPRESS_OPERATION(mix_f32_u8_bfp, void(const ConstKvUnits& values, int64_t channels, const KvWeights&, float* out));

// Many rows at a time, for matrix units. bf16 holds queries, weights, and highs and lows of values exactly, also times
// their units, which are powers of two. Rows come in panels of 16; the last may be shorter.
struct KvQueryTiles {
  const uint16_t* tiles;  // [row panels, channels / 32, 16, 32]; 0 where rows are missing
  int64_t rows;
};
inline constexpr int64_t kKvTilePages = 8;  // at most, per kernel call
constexpr int64_t kv_row_panels(int64_t rows) { return (rows + kTileRows - 1) / kTileRows; }

// A decoded unit: tiles of 16 * high and, if it has any, of lows; what 1 stands for in each lane.
struct alignas(kVectorBytes) KvTileUnit {
  uint16_t highs[kMaxTileBytes / 2], lows[kMaxTileBytes / 2];
  float units[kKvLanes];
  bool has_lows;
};

// Bytes of scratch for tile kernels, 64-byte aligned: the units that share accumulators, and all weights.
constexpr int64_t kv_tile_scratch(int64_t channels, int64_t rows) {
  const int64_t groups = channels / kKvGroup, units = groups < kKvTilePages ? kKvTilePages : groups;
  return units * int64_t{sizeof(KvTileUnit)} + kv_row_panels(rows) * kKvTilePages * kMaxTileBytes;
}

// The same bits as score_f32_bfp_bfp and mix_f32_u8_bfp, for `count` consecutive pages.
TILEPRESS_OPERATION(score_f32_bf16_bfp, void(const ConstKvUnits* keys, int64_t count, int64_t channels,
                                             const KvQueryTiles&, float scaling, float* scores, uint8_t* scratch));
TILEPRESS_OPERATION(mix_f32_bf16_bfp, void(const ConstKvUnits* values, int64_t count, int64_t channels,
                                           const KvWeights&, float* out, uint8_t* scratch));

// Prompts: many tokens of a page at a time, transposed, so that what belongs to a row of queries is one lane
// throughout. Keys and values are left operands, a unit's 16 lanes as rows of 32 values times what 1 stands for, which
// bf16 holds exactly; queries and softmax weights are right operands: tiles of [16 pairs, 16 rows, 2] for 32 channels
// or tokens. Rows come in panels of 16; missing rows have queries of 0.

// A decoded unit; lows where there are any.
struct alignas(kVectorBytes) KvLeftUnit {
  uint16_t highs[kMaxTileBytes / 2], lows[kMaxTileBytes / 2];
  bool has_lows;
};

inline constexpr int64_t kKvScores = kKvPageTokens * kTileRows;  // of a page and a row panel
inline constexpr int64_t kKvTileWords = kMaxTileBytes / 2;

// Bytes of scratch for the kernels below, 64-byte aligned: decoded units.
constexpr int64_t kv_left_scratch(int64_t channels) {
  const int64_t groups = channels / kKvGroup, units = groups < kKvTilePages ? kKvTilePages : groups;
  return units * int64_t{sizeof(KvLeftUnit)};
}

// Scores of `count` consecutive pages: [row panels, pages, 32 tokens, 16 rows], row panels `stride` floats apart. The
// same bits as score_f32_bfp_bfp. largest [row panels, 16]: raised to the largest scores; null: it is not wanted.
struct KvPromptScores {
  const ConstKvUnits* keys;
  int64_t count, channels;
  const uint16_t* queries;  // [row panels, channels / 32, a tile]
  int64_t row_panels;
  float scaling;
  float* scores;
  int64_t stride;
  float* largest;
};
TILEPRESS_OPERATION(score_f32_bfp_bf16, void(const KvPromptScores&, uint8_t* scratch));

// Softmax weights e^(score - largest) of a page and a row panel, as softmax_u8_f32 rounds them, times their units, as a
// tile; sums [16] += the sums of the weights.
TILEPRESS_OPERATION(softmax_bf16_f32, void(const float* scores, const float* largest, uint16_t* weights, float* sums));

// Up to kKvTilePages pages: out [channels / 16, row panels, 16 channels, 16 rows] += values · weights, page after page.
// The same bits as mix_f32_u8_bfp. A page that joins the one before is added to it before they are rounded: its weights
// are 0 where the other's are not.
struct KvPromptPage {
  ConstKvUnits values;
  const uint16_t* weights;  // of the first row panel, a tile
  bool joins;
};
struct KvPromptMix {
  const KvPromptPage* pages;
  int64_t count, channels;
  int64_t row_panels, stride;  // stride: words of weights from one row panel to the next
  float* out;
};
TILEPRESS_OPERATION(mix_f32_bfp_bf16, void(const KvPromptMix&, uint8_t* scratch));

// Softmax weights e^(score - largest) as integers, in groups of 32; `count` is a multiple of 32. For each group their
// sum and what 1 stands for. The same bits as kernels/attention_reference.py; no score is above `largest`.
TILEPRESS_OPERATION(softmax_u8_f32, void(const float* scores, int64_t count, float largest, uint8_t* values,
                                         int32_t* sums, float* units));

// Values rounded to FP16, nearest even, saturating. With offsets: minus the offset, and rounded once more.
TILEPRESS_OPERATION(convert_f16_f32, void(const float* values, const float* offsets, int64_t count, uint16_t* halves));

// A token's slot in its page, and the bits of its magnitudes: truncated, or of the nearest number.
struct KvToken {
  int slot, bits;
  bool nearest;
};

// Writes a token's key as integers under exponents of its own; cuts one that is there to fewer bits.
TILEPRESS_OPERATION(quantize_key_bfp, void(const KvUnits& keys, int64_t channels, const KvToken&, const uint16_t* key));
TILEPRESS_OPERATION(truncate_key_bfp, void(const KvUnits& keys, int64_t channels, const KvToken&));

// FP16 values of the last page's tokens, `stride` apart; tokens from `begin` to `end` have `fewer` bits.
struct KvOpenValues {
  const uint16_t* halves;
  int64_t count, stride;
  int64_t begin, end;
  int fewer, bits;
  bool nearest;
  bool all = false;  // all are written, not only the last
};

// Writes the last of the open values as integers under exponents shared with the tokens before it; where an exponent
// rises, those are rounded again. Or writes all of them. Or cuts a token's values that are there to fewer bits.
TILEPRESS_OPERATION(quantize_value_bfp, void(const KvUnits& values, int64_t channels, const KvOpenValues&));
TILEPRESS_OPERATION(truncate_value_bfp, void(const KvUnits& values, int64_t channels, const KvToken&));

// Values of a page that fills: each token's rows see its tokens as they are when it comes. out [tokens · rows,
// channels] = weights · values for the tokens from `first` to open.count - 1; weights [tokens · rows, 32] float32.
// Tokens from open.begin to `narrow` + token have fewer bits when a token comes. `open.end` is not used.
struct KvOpenMix {
  KvOpenValues open;
  int64_t channels, first, rows;
  int64_t narrow;
  const float* weights;
  float* out;
};
TILEPRESS_OPERATION(mix_f32_f32_f16, void(const KvOpenMix&));

}  // namespace tilepress
