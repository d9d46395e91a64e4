// Lots of activations times one block, its groups' scales applied to their sums, which stay in registers over the span.
// In a nameless namespace for the reason that pack_block.h gives. Sums<rows>, those of a lot, brings
//   Sums(from [rows, 16]); store(to)
//   add(products [rows, 16], scales [16])
// and Tiles, the block's,
//   reach(tile): as WholeTiles has it; at(tile): where it lies
#pragma once

#include "kernels/group_pipeline.h"

namespace tilepress {
namespace {

// Tiles that were all decoded beforehand.
class ReadyTiles {
 public:
  explicit ReadyTiles(const uint16_t* tiles) : tiles_(tiles) {}
  void reach(int64_t) {}
  const uint16_t* at(int64_t tile) const { return tiles_ + tile * (kMaxTileBytes / 2); }

 private:
  const uint16_t* tiles_;
};

// How many of the weights' groups a span meets, and the first of them.
struct SpanGroups {
  explicit SpanGroups(const SpanWeights& weights) {
    first = weights.first / weights.format->group;
    count = (weights.first + weights.inputs - 1) / weights.format->group + 1 - first;
  }
  int64_t first, count;
};

// A lot, as group_pipeline.h takes it, or several one after the other, if they have an even number of groups each, of
// one tile. Groups is WholeTiles or SingleTiles.
template <class Sums, class Tiles, class Groups>
class Bf16Lot {
 public:
  using Product = float;

  // `scales` [groups, 16] of the span.
  Bf16Lot(const GroupProduct& product, Tiles& tiles, const float* scales, int64_t row, int64_t lots)
      : weights_(tiles),
        to_(product.sums + row * kBlockNeurons),
        sums_(to_),
        first_scale_(*product.weights, product.group),
        scale_(first_scale_),
        scales_(scales),
        x_(product.x + row / kTileRows * product.lot_stride),
        lot_stride_(product.lot_stride),
        rows_(least<int64_t>(product.rows - row, kTileRows)),
        groups_(product.count, product.group / tile_inputs(16)),
        lots_(lots),
        left_(lots > 1 ? groups_.groups() : kNoBreak) {}

  int64_t groups() const { return lots_ * groups_.groups(); }
  int64_t rows() const { return rows_; }
  template <int tile, class Unit>
  [[gnu::always_inline]] void multiply(Unit& unit) {
    groups_.template multiply<tile>(unit, *this);
  }
  const uint16_t* x(int64_t tile) const { return x_ + tile * (kMaxTileBytes / 2); }
  const uint16_t* weights(int64_t tile) const { return weights_.at(tile); }
  [[gnu::always_inline]] void reach(int64_t tile) { weights_.reach(tile); }
  [[gnu::always_inline]] void add(const float* products) {
    sums_.add(products, scales_ + scale_.next() * kBlockNeurons);
    --left_;
  }
  void next_x() { x_ += lot_stride_; }
  int64_t until_break() const { return left_; }
  [[gnu::always_inline]] void take_break() {
    store();
    if (--lots_ == 0) return;
    to_ += kTileRows * kBlockNeurons;
    sums_ = Sums(to_);
    scale_ = first_scale_;
    left_ = groups_.groups();
  }
  [[gnu::always_inline]] void store() const { sums_.store(to_); }

 private:
  Tiles& weights_;
  float* to_;
  Sums sums_;
  const ScaleOf first_scale_;
  ScaleOf scale_;
  const float* scales_;
  const uint16_t* x_;
  int64_t lot_stride_, rows_;
  Groups groups_;
  int64_t lots_, left_;
};

template <class Unit, template <int> class Sums, class Tiles>
class GroupMultiplier {
 public:
  GroupMultiplier(const GroupProduct& product, Tiles& tiles, const float* scales)
      : product_(product), tiles_(tiles), scales_(scales) {}

  void run() {
    Unit unit;
    unit.begin(static_cast<int>(least<int64_t>(product_.rows, kTileRows)), kVectorBytes);
    const int64_t lots = (product_.rows + kTileRows - 1) / kTileRows, last = (lots - 1) * kTileRows;
    const bool few = product_.rows - last <= kFewRows;
    if (lots > few) run_rows<kTileRows>(unit, 0, lots - few);
    if (few) run_rows<kFewRows>(unit, last, 1);
    unit.end();
  }

 private:
  static constexpr int kFewRows = 4;

  template <int rows>
  void run_rows(Unit& unit, int64_t row, int64_t lots) {
    const bool single = product_.group == tile_inputs(16), together = single && product_.count % 2 == 0;
    const int64_t at_once = together ? lots : 1;
    for (; lots > 0; lots -= at_once, row += at_once * kTileRows) {
      single ? run_lots<rows, SingleTiles>(unit, row, at_once) : run_lots<rows, WholeTiles>(unit, row, at_once);
    }
  }

  template <int rows, class Groups>
  void run_lots(Unit& unit, int64_t row, int64_t lots) {
    Bf16Lot<Sums<rows>, Tiles, Groups> lot(product_, tiles_, scales_, row, lots);
    multiply_lot(unit, lot);
    if (lots == 1) lot.store();
  }

  const GroupProduct& product_;
  Tiles& tiles_;
  const float* scales_;
};

}  // namespace
}  // namespace tilepress
