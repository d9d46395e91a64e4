// A lot of activations times one block, group after group of what shares every scale. Unit is what tile_multiplier.h
// asks for; Lot brings
//   Product, of which the unit's sums are; groups()
//   first(group): its first step, a step being one product of tiles; x(step), weights(step): where those lie
//   reach(step): called for every step, in order, kAhead steps before it is used
//   add(products [rows, 16]): of the next group
// In a nameless namespace for the reason that pack_block.h gives.
#pragma once

#include "kernels/scales.h"

namespace tilepress {
namespace {

inline constexpr int kAhead = 2;

// The matrix unit is a group ahead of what is stored, and that one ahead of what is added: what a tile register stored
// can be loaded only when it has reached the cache.
template <class Unit, class Lot>
[[gnu::always_inline]] inline void multiply_lot(Unit& unit, Lot& lot) {
  alignas(64) typename Lot::Product products[2][kTileRows * kBlockNeurons] = {};
  const int64_t groups = lot.groups();
#pragma GCC unroll 1
  for (int step = 0; step < kAhead; ++step) lot.reach(step);

  const auto advance = [&]<int tile>(int64_t group) __attribute__((always_inline)) {
    if (group < groups) {
      unit.template zero<tile>();
      const int64_t end = lot.first(group + 1);
#pragma GCC unroll 1
      for (int64_t step = lot.first(group); step < end; ++step) {
        unit.template load<4 + tile>(lot.x(step));
        unit.template load<6 + tile>(lot.weights(step));
        unit.template add_product<tile, 4 + tile, 6 + tile>();
        lot.reach(step + kAhead);
      }
    }
    if (group >= 2) lot.add(products[tile]);
    if (group >= 1 && group <= groups) unit.template store<1 - tile>(products[1 - tile]);
  };
  for (int64_t group = 0; group < groups + 2; group += 2) {
    advance.template operator()<0>(group);
    if (group + 1 < groups + 2) advance.template operator()<1>(group + 1);
  }
}

// Which of the weights' scales the next group has, from the span's first on: one may serve several.
class ScaleOf {
 public:
  ScaleOf(const SpanWeights& weights, int64_t group)
      : served_((weights.format->group + group - 1) / group), left_(served_ - weights.first / group % served_) {}

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
