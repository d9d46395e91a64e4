// Lots of activations times one block, its groups' scales applied to their sums, which stay in registers over the span.
// In a nameless namespace for the reason that pack_block.h gives. Unit is what tile_multiplier.h asks for; Sums<rows>,
// those of a lot, brings
//   Sums(from [rows, 16]); store(to)
//   add(products [rows, 16], scales [16], units [rows, stride] or null, stride)
// and Tiles, the block's,
//   reach(tile): called for every tile, in order, kAhead tiles before it is used; at(tile): where it lies
#pragma once

#include "kernels/scales.h"

namespace tilepress {
namespace {

inline constexpr int kAhead = 2;

// Tiles that were all decoded beforehand.
class ReadyTiles {
 public:
  explicit ReadyTiles(const uint16_t* tiles) : tiles_(tiles) {}
  void reach(int64_t) {}
  const uint16_t* at(int64_t tile) const { return tiles_ + tile * (kMaxTileBytes / 2); }

 private:
  const uint16_t* tiles_;
};

// Which of the weights' scales the next group of a product has, from the span's first on: one may serve several.
class ScaleOf {
 public:
  explicit ScaleOf(const GroupProduct& product)
      : served_((product.weights->format->group + product.group - 1) / product.group),
        left_(served_ - product.weights->first / product.group % served_) {}

  int64_t next() {
    const int64_t mine = scale_;
    if (!--left_) ++scale_, left_ = served_;
    return mine;
  }

 private:
  int64_t served_, left_, scale_ = 0;
};

// How many of the weights' groups a span meets, and the first of them.
struct SpanGroups {
  explicit SpanGroups(const SpanWeights& weights) {
    first = weights.first / weights.format->group;
    count = (weights.first + weights.inputs - 1) / weights.format->group + 1 - first;
  }
  int64_t first, count;
};

template <class Unit, template <int> class Sums, class Tiles>
class GroupMultiplier {
 public:
  // `scales` [groups, 16] of the span.
  GroupMultiplier(const GroupProduct& product, Tiles& tiles, const float* scales)
      : product_(product), tiles_(tiles), scales_(scales) {}

  void run() {
    Unit unit;
    unit.begin(static_cast<int>(least<int64_t>(product_.rows, kTileRows)), kVectorBytes);
    for (int64_t row = 0; row < product_.rows; row += kTileRows) {
      product_.rows - row > kFewRows ? run_lot<kTileRows>(unit, row) : run_lot<kFewRows>(unit, row);
    }
    unit.end();
  }

 private:
  static constexpr int kTile = kMaxTileBytes / 2;  // values
  static constexpr int kFewRows = 4;

  // The matrix unit is a group ahead of what is stored, and that one ahead of what is added: what a tile register
  // stored can be loaded only when it has reached the cache. All that the loop needs is copied out of reach of the
  // unit's assembly.
  template <int rows>
  void run_lot(Unit& unit, int64_t row) {
    alignas(64) float products[2][kTileRows * kBlockNeurons] = {};
    const int64_t count = product_.count, tiles = product_.group / tile_inputs(16);
    const int64_t groups = (count + tiles - 1) / tiles, unit_stride = product_.unit_stride;
    const uint16_t* x = product_.x + row / kTileRows * product_.lot_stride;
    const float* scales = scales_;
    const float* units = product_.units ? product_.units + row * unit_stride : nullptr;
    float* out = product_.sums + row * kBlockNeurons;
    Tiles& weights = tiles_;
    Sums<rows> sums(out);
    ScaleOf scale(product_);
#pragma GCC unroll 1
    for (int tile = 0; tile < kAhead; ++tile) weights.reach(tile);

    const auto step = [&]<int tile>(int64_t group) {
      if (group < groups) {
        unit.template zero<tile>();
        const int64_t end = least((group + 1) * tiles, count);
#pragma GCC unroll 1
        for (int64_t at = group * tiles; at < end; ++at) {
          unit.template load<4 + tile>(x + at * kTile);
          unit.template load<6 + tile>(weights.at(at));
          unit.template add_product<tile, 4 + tile, 6 + tile>();
          weights.reach(at + kAhead);
        }
      }
      if (group >= 2) {
        sums.add(products[tile], scales + scale.next() * kBlockNeurons, units ? units + group - 2 : nullptr,
                 unit_stride);
      }
      if (group >= 1 && group <= groups) unit.template store<1 - tile>(products[1 - tile]);
    };
    for (int64_t group = 0; group < groups + 2; group += 2) {
      step.template operator()<0>(group);
      if (group + 1 < groups + 2) step.template operator()<1>(group + 1);
    }
    sums.store(out);
  }

  const GroupProduct& product_;
  Tiles& tiles_;
  const float* scales_;
};

}  // namespace
}  // namespace tilepress
