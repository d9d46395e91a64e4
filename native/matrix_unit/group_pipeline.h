// A row panel of activations times one block, group after group of what shares every scale. Unit is what
// tile_registers.h asks for; Lot brings
//   Product, of which the unit's sums are; groups(), one at the least; rows(), of which a row panel may lack some
//   multiply<tile>(unit): the next group, summed in that tile register, 0 or 1 in turn
//   add(products [rows, 16]): of the next group
//   until_break(): how many groups are to be added before take_break() is called, an even number at first and then
//   again after each break; kNoBreak: no matter
#pragma once

#include <cstring>

#include "quantize/scales.h"

namespace tilepress {
namespace {

inline constexpr int64_t kNoBreak = int64_t{1} << 62;

// The matrix unit is a group ahead of what is stored, and that one ahead of what is added: what a tile register stored
// can be loaded only when it has reached the cache.
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
    if (!row_panel.until_break()) row_panel.take_break();
  };
  const auto finish = [&]<int tile>() __attribute__((always_inline)) {  // when this register has the last group
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
    for (; group < end; group += 2) {  // nothing but this, or sums will not stay in their registers
      advance.template operator()<0>();
      advance.template operator()<1>();
    }
    if (!row_panel.until_break()) row_panel.take_break();
  }
  if (groups % 2 == 0) return finish.template operator()<1>();
  advance.template operator()<0>();
  finish.template operator()<0>();
}

// How many tiles before they are used decoders make them.
inline constexpr int kAhead = 2;

// Groups of whole tiles: `count` of them, `steps` a group. Lot brings
//   x(tile), weights(tile): where those lie; x_stride(): bytes from a row of activations to the next
//   reach(tile): called for every tile, in order, kAhead tiles before it is used, and for some past the last
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
      row_panel.reach(step_ + kAhead);
    }
  }

 private:
  template <class RowPanel>
  [[gnu::always_inline]] static void begin(RowPanel& row_panel) {
#pragma GCC unroll 1
    for (int step = 0; step < kAhead; ++step) row_panel.reach(step);
  }

  int64_t count_, steps_, step_ = 0;
};

// The same where a group is one tile.
class SingleTiles {
 public:
  SingleTiles(int64_t count, int64_t) : count_(count) {}

  int64_t groups() const { return count_; }

  template <int tile, class Unit, class RowPanel>
  [[gnu::always_inline]] void multiply(Unit& unit, RowPanel& row_panel) {
    if (!step_) row_panel.reach(0), row_panel.reach(1);
    unit.template zero<tile>();
    unit.template load<4>(row_panel.x(step_), row_panel.x_stride());
    unit.template load<6>(row_panel.weights(step_));
    unit.template add_product<tile, 4, 6>();
    row_panel.reach(++step_ + 1);
  }

 private:
  int64_t count_, step_ = 0;
};

// Which of the weights' scales the next group has, from the K-panel's first on: one may serve several.
class ScaleOf {
 public:
  ScaleOf(const KPanel& weights, int64_t group)
      : served_((weights.format->group + group - 1) / group), left_(served_ - weights.first / group % served_) {}

  int64_t now() const { return scale_; }
  int64_t next() {
    const int64_t mine = scale_;
    if (!--left_) ++scale_, left_ = served_;
    return mine;
  }

 private:
  int64_t served_, left_, scale_ = 0;
};

}  // namespace
}  // namespace tilepress
