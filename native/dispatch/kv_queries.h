// Queries and weights of the heads that share keys and values, as integers.
#pragma once

#include <algorithm>
#include <vector>

#include "dispatch/nine_bits.h"
#include "dispatch/registry.h"
#include "tilepress/kv.h"

namespace tilepress {

// Rows of some tokens, token after token.
struct QueryRows {
  const float* first;
  int64_t of_token, stride;  // rows of a token, and from one to the next
  int64_t tokens, token_stride;

  int64_t count() const { return tokens * of_token; }
  const float* row(int64_t index) const { return first + index / of_token * token_stride + index % of_token * stride; }
};

class Queries {
 public:
  void set(const QueryRows& queries, int64_t channels) {
    const int64_t rows = queries.count(), groups = channels / kKvGroup, all = kv_sets(rows) * groups;
    bytes_.resize(static_cast<size_t>(all * kKvVectors * kKvGroup));
    sums_.resize(static_cast<size_t>(all * kKvVectors));
    units_.resize(static_cast<size_t>(all * kKvSet));
    rows_ = rows;
    QuantizeBfp* quantize = choose(kQuantizeBfp);
    for (int64_t at = 0; at < all; ++at) {
      const int64_t row = at / groups * kKvSet;
      set_group(quantize, queries, row, at % groups * kKvGroup, at);
    }
  }

  KvQueries view() const { return {bytes_.data(), sums_.data(), units_.data(), rows_}; }

 private:
  // One set's rows, from `first` on, of a group of channels.
  void set_group(QuantizeBfp* quantize, const QueryRows& queries, int64_t first, int64_t channel, int64_t at) {
    const int64_t rows = std::min<int64_t>(rows_ - first, kKvSet);
    int32_t values[kKvSet * kKvGroup] = {};
    int8_t* bytes = bytes_.data() + at * kKvVectors * kKvGroup;
    for (int64_t row = 0; row < rows; ++row) {
      units_[static_cast<size_t>(at * kKvSet + row)] =
          round(quantize, queries.row(first + row) + channel, values + row * kKvGroup);
    }
    rows == 1   ? to_lines<1>(values, bytes)
    : rows == 2 ? to_lines<2>(values, bytes)
    : rows == 3 ? to_lines<3>(values, bytes)
                : to_lines<4>(values, bytes);
    for (int64_t vector = 0; vector <= rows; ++vector) {
      int32_t sum = 0;
      for (int i = 0; i < kKvGroup; ++i) sum += bytes[vector * kKvGroup + i];
      sums_[static_cast<size_t>(at * kKvVectors + vector)] = sum;
    }
  }

  // A group's values, and what 1 stands for.
  static float round(QuantizeBfp* quantize, const float* from, int32_t* values) {
    int8_t digits[2 * kKvGroup];
    int32_t sum;
    float unit;
    const BfpInput in = {reinterpret_cast<const uint8_t*>(from), Real::f32, kKvGroup, kKvGroup, kKvGroup, 8, false};
    quantize(in, {{digits, digits + kKvGroup}, nullptr, kKvGroup, kPiece, &sum, &unit});
    for (int i = 0; i < kKvGroup; ++i) values[i] = (digits[i] * (1 << kDigitBits)) + digits[kKvGroup + i];
    return unit;
  }

  std::vector<int8_t> bytes_;
  std::vector<int32_t> sums_;
  std::vector<float> units_;
  int64_t rows_ = 0;
};

// A segment's weights.
struct Weights {
  std::vector<uint8_t> values;  // [rows, kKvSegment]
  std::vector<int32_t> sums;    // [rows, kKvSegmentBlocks]
  std::vector<float> units;

  void make_room(int64_t rows) {
    values.resize(static_cast<size_t>(rows * kKvSegment));
    sums.resize(static_cast<size_t>(rows * kKvSegmentBlocks));
    units.resize(sums.size());
  }
};

}  // namespace tilepress
