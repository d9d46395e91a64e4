// One row panel of activations × one block, group after group, as a software pipeline. A group is what shares every
// scale. Unit: see tile_registers.h. A RowPanel provides
//   Product              type of the unit's accumulators
//   groups()             at least 1
//   rows()               at most 16
//   multiply<tile>(unit) dot products of the next group, in tile register 0 or 1, alternately
//   add(products)        scales and accumulates those [16, 16] of the next group
//   until_break()        groups to add before on_break(): even at first and after each break; kNoBreak: never
//   on_break()           work that the inner loop must not contain
#pragma once

#include <cstring>

#include "quantize/scales.h"

namespace tilepress {
namespace {

inline constexpr int64_t kNoBreak = int64_t{1} << 62;

// Three stages, each one group ahead of the next: multiply, store, add. A store of a tile register can be loaded only
// when it has reached the cache.
template <class Unit, class RowPanel>
[[gnu::always_inline]] inline void multiply_row_panel(Unit& unit, RowPanel& row_panel) {
  alignas(64) typename RowPanel::Product products[2][kTileRows * kBlockNeurons];
  if (row_panel.rows() < kTileRows) std::memset(products, 0, sizeof products);
  const auto advance = [&]<int tile>() __attribute__((always_inline)) {
    row_panel.template multiply<tile>(unit);
    row_panel.add(products[tile]);
    unit.template store<1 - tile>(products[1 - tile]);
  };
  const auto add = [&](const auto& product) __attribute__((always_inline)) {
    row_panel.add(product);
    if (!row_panel.until_break()) row_panel.on_break();
  };
  const auto finish = [&]<int tile>() __attribute__((always_inline)) {  // the last group is in this register
    add(products[1 - tile]);
    unit.template store<tile>(products[tile]);
    add(products[tile]);
  };
  const int64_t groups = row_panel.groups();
  row_panel.template multiply<0>(unit);
  unit.template store<0>(products[0]);
  if (groups == 1) return add(products[0]);
  row_panel.template multiply<1>(unit);
  for (int64_t group = 2; group + 1 < groups;) {
    const int64_t end = group + least(groups - group, row_panel.until_break()) / 2 * 2;
#pragma GCC unroll 1
    for (; group < end; group += 2) {  // nothing else here, or accumulators are spilled
      advance.template operator()<0>();
      advance.template operator()<1>();
    }
    if (!row_panel.until_break()) row_panel.on_break();
  }
  if (groups % 2 == 0) return finish.template operator()<1>();
  advance.template operator()<0>();
  finish.template operator()<0>();
}

// Tiles are decoded this many tiles before they are used.
inline constexpr int kTilesAhead = 2;

// Groups of several whole tiles: `count` tiles, `steps` per group. The RowPanel provides
//   x(tile), weights(tile)  addresses of tiles
//   x_stride()              bytes from one row of activations to the next
//   prepare(tile)           called for every tile, in order, kTilesAhead tiles before it is used; also past the last
class WholeTiles {
 public:
  WholeTiles(int64_t count, int64_t steps) : count_(count), steps_(steps) {}

  int64_t groups() const { return (count_ + steps_ - 1) / steps_; }

  template <int tile, class Unit, class RowPanel>
  [[gnu::always_inline]] void multiply(Unit& unit, RowPanel& row_panel) {
    if (!step_) begin(row_panel);
    unit.template zero<tile>();
    const int64_t end = least(step_ + steps_, count_);
#pragma GCC unroll 1
    for (; step_ < end; ++step_) {
      unit.template load<4>(row_panel.x(step_), row_panel.x_stride());
      unit.template load<6>(row_panel.weights(step_));
      unit.template add_product<tile, 4, 6>();
      row_panel.prepare(step_ + kTilesAhead);
    }
  }

 private:
  template <class RowPanel>
  [[gnu::always_inline]] static void begin(RowPanel& row_panel) {
#pragma GCC unroll 1
    for (int step = 0; step < kTilesAhead; ++step) row_panel.prepare(step);
  }

  int64_t count_, steps_, step_ = 0;
};

// Groups of one tile.
class SingleTiles {
 public:
  SingleTiles(int64_t count, int64_t) : count_(count) {}

  int64_t groups() const { return count_; }

  template <int tile, class Unit, class RowPanel>
  [[gnu::always_inline]] void multiply(Unit& unit, RowPanel& row_panel) {
    if (!step_) row_panel.prepare(0), row_panel.prepare(1);
    unit.template zero<tile>();
    unit.template load<4>(row_panel.x(step_), row_panel.x_stride());
    unit.template load<6>(row_panel.weights(step_));
    unit.template add_product<tile, 4, 6>();
    row_panel.prepare(++step_ + 1);
  }

 private:
  int64_t count_, step_ = 0;
};

// Index of the next group's scale, from the K-panel's first on; one scale may serve several groups.
class ScaleIndex {
 public:
  ScaleIndex(const KPanel& weights, int64_t group)
      : groups_per_scale_((weights.format->group + group - 1) / group),
        left_(groups_per_scale_ - weights.first / group % groups_per_scale_) {}

  int64_t current() const { return scale_; }
  int64_t next() {
    const int64_t index = scale_;
    if (!--left_) ++scale_, left_ = groups_per_scale_;
    return index;
  }

 private:
  int64_t groups_per_scale_, left_, scale_ = 0;
};

}  // namespace
}  // namespace tilepress
