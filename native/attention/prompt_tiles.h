// Scores and outputs of a prompt on a matrix unit, keys and values as left operands. All sums of a group are exact.
//
// Rows has
//   highs(unit, to), lows(unit, to)   a unit's values, 16 lanes × 32, times what 1 stands for in each lane
// Sums, the accumulators of 16 lanes × 16 rows, has
//   zero(), load(from), store(to), add(products)
//   store_scaled(to, factor, largest)  and raises `largest` [16] unless it is null
#pragma once

#include "matrix_unit/group_pipeline.h"
#include "tilepress/kv_bfp.h"

namespace tilepress {
namespace {

template <class Rows>
[[gnu::always_inline]] inline void decode_left(const ConstKvUnits& units, int64_t index, KvLeftUnit& to) {
  const ConstKvUnits unit = units.unit(index);
  Rows::highs(unit, to.highs);
  if (unit.lows) Rows::lows(unit, to.lows);
  to.has_lows = unit.lows;
}

template <int tile, class Unit>
[[gnu::always_inline]] inline void add_unit(Unit& unit, const KvLeftUnit& left, const uint16_t* right) {
  unit.template load<4>(left.highs);
  unit.template load<6>(right);
  unit.template add_product<tile, 4, 6>();
  if (!left.has_lows) return;
  unit.template load<5>(left.lows);
  unit.template add_product<tile, 5, 6>();
}

// Row panel after row panel as one pipeline (group_pipeline.h), `each` groups of each. `Work` has
//   multiply<tile>(unit, row panel, group)
//   begin(row panel, sums), end(row panel, sums)
template <class Sums, class Work>
class RowPanels {
 public:
  using Product = float;

  RowPanels(Work& work, int64_t first, int64_t count, int64_t each)
      : work_(work), panel_(first), added_(first), count_(count), each_(each), left_(each) {
    work_.begin(first, sums_);
  }

  int64_t groups() const { return count_ * each_; }
  static int64_t rows() { return kTileRows; }

  template <int tile, class Unit>
  [[gnu::always_inline]] void multiply(Unit& unit) {
    unit.template zero<tile>();
    work_.template multiply<tile>(unit, panel_, group_);
    if (++group_ == each_) group_ = 0, ++panel_;
  }
  [[gnu::always_inline]] void add(const float* products) { sums_.add(products), --left_; }
  int64_t until_break() const { return left_; }
  [[gnu::always_inline]] void on_break() {
    work_.end(added_++, sums_);
    work_.begin(added_, sums_);
    left_ = each_;
  }

 private:
  Work& work_;
  int64_t panel_, added_, count_, each_, left_, group_ = 0;
  Sums sums_;
};

// Breaks come after an even number of groups, so an odd number has a pipeline of its own for each row panel.
template <class Sums, class Unit, class Work>
[[gnu::always_inline]] inline void multiply_row_panels(Unit& unit, Work& work, int64_t count, int64_t each) {
  const int64_t together = each % 2 ? 1 : count;
  for (int64_t first = 0; first < count; first += together) {
    RowPanels<Sums, Work> row_panels(work, first, together, each);
    multiply_row_panel(unit, row_panels);
    if (!row_panels.until_break()) row_panels.on_break();
  }
}

template <class Sums>
struct ScoreWork {
  const KvPromptScores& all;
  const KvLeftUnit* units;
  int64_t groups;
  float* scores;

  template <int tile, class Unit>
  [[gnu::always_inline]] void multiply(Unit& unit, int64_t panel, int64_t group) const {
    add_unit<tile>(unit, units[group], all.queries + (panel * groups + group) * kKvTileWords);
  }
  [[gnu::always_inline]] void begin(int64_t, Sums& sums) const { sums.zero(); }
  [[gnu::always_inline]] void end(int64_t panel, const Sums& sums) const {
    sums.store_scaled(scores + panel * all.stride, all.scaling,
                      all.largest ? all.largest + panel * kTileRows : nullptr);
  }
};

template <class Unit, class Rows, class Sums>
void score_prompt(const KvPromptScores& all, uint8_t* scratch) {
  auto* units = reinterpret_cast<KvLeftUnit*>(scratch);
  const int64_t groups = all.channels / kKvGroup;
  Unit unit;
  unit.begin(kTileRows, kVectorBytes);
  for (int64_t page = 0; page < all.count; ++page) {
    for (int64_t half = 0; half < 2; ++half) {
      for (int64_t i = 0; i < groups; ++i) decode_left<Rows>(all.keys[page], half * groups + i, units[i]);
      ScoreWork<Sums> work = {all, units, groups, all.scores + page * kKvScores + half * kKvLanes * kTileRows};
      multiply_row_panels<Sums>(unit, work, all.row_panels, groups);
    }
  }
  unit.end();
}

template <class Sums>
struct MixWork {
  const KvPromptMix& all;
  const KvLeftUnit* units;
  const int64_t* first;  // pages of each group
  float* out;

  template <int tile, class Unit>
  [[gnu::always_inline]] void multiply(Unit& unit, int64_t panel, int64_t group) const {
    for (int64_t i = first[group]; i < first[group + 1]; ++i) {
      add_unit<tile>(unit, units[i], all.pages[i].weights + panel * all.stride);
    }
  }
  [[gnu::always_inline]] void begin(int64_t panel, Sums& sums) const {
    if (panel < all.row_panels) sums.load(out + panel * kTileRows * kKvLanes);
  }
  [[gnu::always_inline]] void end(int64_t panel, const Sums& sums) const {
    sums.store(out + panel * kTileRows * kKvLanes);
  }
};

template <class Unit, class Rows, class Sums>
void mix_prompt(const KvPromptMix& all, uint8_t* scratch) {
  auto* units = reinterpret_cast<KvLeftUnit*>(scratch);
  int64_t first[kKvTilePages + 1], groups = 0;
  for (int64_t i = 0; i < all.count; ++i) {
    if (!all.pages[i].joins) first[groups++] = i;
  }
  first[groups] = all.count;
  Unit unit;
  unit.begin(kTileRows, kVectorBytes);
  for (int64_t at = 0; at < kv_units(all.channels); ++at) {
    for (int64_t i = 0; i < all.count; ++i) decode_left<Rows>(all.pages[i].values, at, units[i]);
    MixWork<Sums> work = {all, units, first, all.out + at * all.row_panels * kTileRows * kKvLanes};
    multiply_row_panels<Sums>(unit, work, all.row_panels, groups);
  }
  unit.end();
}

}  // namespace
}  // namespace tilepress
