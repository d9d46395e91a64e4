// Queries of the query heads that share a KV head, rounded to integers, as kernels take them.
#pragma once

#include <algorithm>
#include <cstring>
#include <vector>

#include "dispatch/nine_bits.h"
#include "dispatch/registry.h"
#include "tilepress/kv_bfp.h"

namespace tilepress {

// Rows of consecutive tokens, token after token.
struct QueryRows {
  const float* first;
  int64_t of_token, stride;  // rows of a token, and their distance
  int64_t tokens, token_stride;

  int64_t count() const { return tokens * of_token; }
  const float* row(int64_t index) const { return first + index / of_token * token_stride + index % of_token * stride; }
};

// For score_f32_bfp_bfp.
class Queries {
 public:
  void set(const QueryRows& queries, int64_t channels) {
    const int64_t groups = channels / kKvGroup;
    rows_ = queries.count();
    bytes_.resize(static_cast<size_t>(kv_sets(rows_) * groups * kKvVectors * kKvGroup));
    sums_.resize(static_cast<size_t>(kv_sets(rows_) * groups * kKvVectors));
    units_.resize(static_cast<size_t>(kv_sets(rows_) * groups * kKvSet));
    static thread_local Limbs limbs;
    limbs.make_room(channels);
    for (int64_t first = 0; first < rows_; first += kKvSet) {
      const int64_t rows = std::min<int64_t>(rows_ - first, kKvSet), at = first / kKvSet * groups;
      for (int64_t row = 0; row < rows; ++row) {
        limbs.round(queries.row(first + row), channels, row, units_.data() + at * kKvSet + row);
      }
      for (int64_t group = 0; group < groups; ++group) set_group(limbs, rows, group, at + group);
    }
  }

  KvQueries view() const { return {bytes_.data(), sums_.data(), units_.data(), rows_}; }

 private:
  // A set's rows, two int8 limbs per value.
  struct Limbs {
    std::vector<int8_t> values;
    std::vector<int32_t> sums;  // of one row, as are units
    std::vector<float> units;
    int64_t padded = 0;

    void make_room(int64_t channels) {
      padded = (channels + kPiece - 1) / kPiece * kPiece;
      values.resize(static_cast<size_t>(2 * kKvSet * padded));
      sums.resize(static_cast<size_t>(channels / kKvGroup));
      units.resize(sums.size());
    }
    int8_t* of(int64_t row, int limb) { return values.data() + (2 * row + limb) * padded; }

    // to: what 1 stands for in each group, kKvSet apart.
    void round(const float* from, int64_t channels, int64_t row, float* to) {
      const BfpInput in = {
          reinterpret_cast<const uint8_t*>(from), FloatType::f32, channels, kKvGroup, kKvGroup, 8, false};
      choose<ops::quantize_bfp_fp>()(in,
                                     {{of(row, 0), of(row, 1)}, nullptr, padded, kPiece, sums.data(), units.data()});
      for (float unit : units) *to = unit, to += kKvSet;
    }
  };

  // A group of a set, number `at` of all.
  void set_group(Limbs& limbs, int64_t rows, int64_t group, int64_t at) {
    int32_t values[kKvSet * kKvGroup] = {};
    int8_t* bytes = bytes_.data() + at * kKvVectors * kKvGroup;
    for (int64_t row = 0; row < rows; ++row) {
      const int8_t *high = limbs.of(row, 0) + group * kKvGroup, *low = limbs.of(row, 1) + group * kKvGroup;
      for (int i = 0; i < kKvGroup; ++i) values[row * kKvGroup + i] = high[i] * (1 << kLimbBits) + low[i];
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

  std::vector<int8_t> bytes_;
  std::vector<int32_t> sums_;
  std::vector<float> units_;
  int64_t rows_ = 0;
};

// For score_f32_bf16_bfp.
class QueryTiles {
 public:
  void set(const QueryRows& queries, int64_t channels) {
    constexpr int64_t kTile = kMaxTileBytes / 2;
    const int64_t groups = channels / kKvGroup;
    rows_ = queries.count();
    tiles_.assign(static_cast<size_t>(kv_row_panels(rows_) * groups * kTile), 0);
    sums_.resize(static_cast<size_t>(groups));
    units_.resize(static_cast<size_t>(groups));
    KernelOf<ops::quantize_bfp_fp> quantize = choose<ops::quantize_bfp_fp>();
    for (int64_t row = 0; row < rows_; ++row) {
      const auto* from = reinterpret_cast<const uint8_t*>(queries.row(row));
      uint16_t* to = tiles_.data() + row / kTileRows * groups * kTile + row % kTileRows * kKvGroup;
      quantize({from, FloatType::f32, channels, kKvGroup, kKvGroup, 8, false},
               {{}, to, channels, kTile, sums_.data(), units_.data()});
    }
  }

  KvQueryTiles view() const { return {tiles_.data(), rows_}; }

 private:
  std::vector<uint16_t> tiles_;
  std::vector<int32_t> sums_;  // unused
  std::vector<float> units_;
  int64_t rows_ = 0;
};

// For score_f32_bfp_bf16: right operands.
class QueryColumns {
 public:
  void set(const QueryRows& queries, int64_t channels) {
    const int64_t groups = channels / kKvGroup, rows = queries.count();
    tiles_.assign(static_cast<size_t>(kv_row_panels(rows) * groups * kKvTileWords), 0);
    row_.resize(static_cast<size_t>(channels));
    sums_.resize(static_cast<size_t>(groups));
    units_.resize(static_cast<size_t>(groups));
    const KernelOf<ops::quantize_bfp_fp> quantize = choose<ops::quantize_bfp_fp>();
    for (int64_t row = 0; row < rows; ++row) {
      const auto* from = reinterpret_cast<const uint8_t*>(queries.row(row));
      quantize({from, FloatType::f32, channels, kKvGroup, kKvGroup, 8, false},
               {{}, row_.data(), channels, kKvGroup, sums_.data(), units_.data()});
      uint16_t* to = tiles_.data() + row / kTileRows * groups * kKvTileWords + row % kTileRows * 2;
      for (int64_t i = 0; i < channels; i += 2, to += kTileRows * 2) std::memcpy(to, row_.data() + i, 4);
    }
  }

  const uint16_t* data() const { return tiles_.data(); }

 private:
  std::vector<uint16_t> tiles_, row_;
  std::vector<int32_t> sums_;  // unused
  std::vector<float> units_;   // unused
};

}  // namespace tilepress
