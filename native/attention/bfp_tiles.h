// Scores and outputs of many rows on a matrix unit: the same bits as score_f32_bfp_bfp and mix_f32_u8_bfp. Nine-bit
// integers are 16 * high + low, and bf16 holds both; all sums of a group are exact.
//
// Tiles has
//   highs(codes, to), lows(lows, to): a unit's values as a right operand
//   units(exponents, to [16]): what 1 stands for in each lane
//   weights(values, units, rows, to): a page's softmax weights times their units as a left operand
// Sums, the accumulators of a row panel of up to 16 rows, has
//   Sums(from, stride, rows), zeros if from is null; store(to, stride, rows, factor)
//   add(products [16, 16], units [16])
#pragma once

#include "matrix_unit/group_pipeline.h"
#include "tilepress/kv_bfp.h"

namespace tilepress {
namespace {

constexpr int64_t kTileWords = kMaxTileBytes / 2;

template <class Tiles>
[[gnu::always_inline]] inline void decode_unit(const ConstKvUnits& units, int64_t index, KvTileUnit& to) {
  const ConstKvUnits unit = units.unit(index);
  Tiles::highs(unit.codes, to.highs);
  if (unit.lows) Tiles::lows(unit.lows, to.lows);
  Tiles::units(unit.exponents, to.units);
  to.has_lows = unit.lows;
}

// One row panel and the units that share its accumulators, as group_pipeline.h takes them.
template <class Sums>
class AttendRowPanel {
 public:
  using Product = float;

  AttendRowPanel(const uint16_t* x, const KvTileUnit* units, int64_t count, Sums& sums)
      : x_(x), units_(units), count_(count), sums_(sums) {}

  int64_t groups() const { return count_; }
  static int64_t rows() { return kTileRows; }

  template <int tile, class Unit>
  [[gnu::always_inline]] void multiply(Unit& unit) {
    const KvTileUnit& mine = units_[step_];
    unit.template zero<tile>();
    unit.template load<4>(x_ + step_ * kTileWords);
    unit.template load<6>(mine.highs);
    unit.template add_product<tile, 4, 6>();
    if (mine.has_lows) {
      unit.template load<6>(mine.lows);
      unit.template add_product<tile, 4, 6>();
    }
    ++step_;
  }
  [[gnu::always_inline]] void add(const float* products) { sums_.add(products, units_[added_++].units); }
  static int64_t until_break() { return kNoBreak; }
  static void on_break() {}

 private:
  const uint16_t* x_;
  const KvTileUnit* units_;
  int64_t count_, step_ = 0, added_ = 0;
  Sums& sums_;
};

template <class Unit, class Tiles, class Sums>
class AttentionOnTiles {
 public:
  AttentionOnTiles(int64_t channels, uint8_t* scratch) : channels_(channels) {
    units_ = reinterpret_cast<KvTileUnit*>(scratch);
    weights_ = reinterpret_cast<uint16_t*>(units_ + most(channels / kKvGroup, kKvTilePages));
    unit_.begin(kTileRows, kVectorBytes);
  }
  ~AttentionOnTiles() { unit_.end(); }

  void score(const ConstKvUnits& keys, const KvQueryTiles& queries, float scaling, float* scores) {
    const int64_t groups = channels_ / kKvGroup;
    for (int64_t half = 0; half < 2; ++half, scores += kKvLanes) {
      for (int64_t i = 0; i < groups; ++i) decode_unit<Tiles>(keys, half * groups + i, units_[i]);
      for (int64_t row = 0; row < queries.rows; row += kTileRows) {
        const int64_t rows = least<int64_t>(queries.rows - row, kTileRows);
        Sums sums(nullptr, 0, rows);
        multiply(queries.tiles + row / kTileRows * groups * kTileWords, groups, sums);
        sums.store(scores + row * kKvSegment, kKvSegment, rows, scaling);
      }
    }
  }

  void mix(const ConstKvUnits* values, int64_t count, const KvWeights& weights, float* out) {
    for (int64_t row = 0; row < weights.rows; row += kTileRows) {
      for (int64_t i = 0; i < count; ++i) {
        const int64_t at = row * kKvSegmentPages + i;
        Tiles::weights(weights.values + at * kKvPageTokens, weights.units + at,
                       least<int64_t>(weights.rows - row, kTileRows),
                       weights_ + (row / kTileRows * count + i) * kTileWords);
      }
    }
    for (int64_t unit = 0; unit < kv_units(channels_); ++unit, out += weights.rows * kKvLanes) {
      for (int64_t i = 0; i < count; ++i) decode_unit<Tiles>(values[i], unit, units_[i]);
      for (int64_t row = 0; row < weights.rows; row += kTileRows) {
        const int64_t rows = least<int64_t>(weights.rows - row, kTileRows);
        Sums sums(out + row * kKvLanes, kKvLanes, rows);
        multiply(weights_ + row / kTileRows * count * kTileWords, count, sums);
        sums.store(out + row * kKvLanes, kKvLanes, rows, 1.0f);
      }
    }
  }

 private:
  [[gnu::always_inline]] void multiply(const uint16_t* x, int64_t count, Sums& sums) {
    AttendRowPanel<Sums> row_panel(x, units_, count, sums);
    multiply_row_panel(unit_, row_panel);
  }

  Unit unit_;
  int64_t channels_;
  KvTileUnit* units_;
  uint16_t* weights_;  // [row panels, pages, 16, 32]
};

}  // namespace
}  // namespace tilepress
