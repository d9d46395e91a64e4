// Lots of int8 activations times blocks of int8 operands over a span, with the sums that linear_span.h defines. Tiles
// has
//   reach(tile): called for every tile, in order, one or two before it is used, and for some past the last;
//   at(block, tile): where a block's tile lies; kReady: whether all lie there from the first
// Unit is what tile_multiplier.h asks for, and brings
//   finish_rows(weights, x, segment, row, rows, high, low or null, sums): linear_span.h's `finish` for each row
//   Sums<units, zeros>, those of one lot: add(weights, x, segment index, group, row, dots [rows, 16]), the same for all
//   rows of a lot; add_to(out, rows)
#pragma once

#include "kernels/group_pipeline.h"
#include "kernels/linear_f32_i8_int/linear_span.h"
#include "kernels/tile_multiplier.h"

namespace tilepress {
namespace {

// Tiles that were all decoded beforehand.
class ReadyTiles {
 public:
  static constexpr bool kReady = true;

  explicit ReadyTiles(const IntegerProduct& product) : product_(product) {}
  void reach(int64_t) {}
  const int8_t* at(int block, int64_t tile) const { return product_.tiles[block] + tile * kMaxTileBytes; }

 private:
  const IntegerProduct& product_;
};

// One lot and one block, as group_pipeline.h takes it. Half a tile of weights is eight rows of 64 bytes; of
// activations, 32 bytes of each row.
template <class Sums, class Tiles>
class Int8Lot {
 public:
  using Product = int32_t;

  Int8Lot(const IntegerProduct& product, Tiles& tiles, int block, int64_t row, int inputs)
      : weights_(*product.weights[block]),
        block_(block),
        activations_(product.x),
        tiles_(tiles),
        scale_(weights_, product.x.segment),
        first_group_(weights_.first / weights_.format->group),
        x_(product.x.digits[0] + row / kTileRows * product.lot_stride),
        row_(row),
        steps_(least(product.x.segment, weights_.inputs + inputs - 1) / inputs),
        count_((weights_.inputs + inputs - 1) / inputs),
        halves_(inputs < kTileInputs) {}

  int64_t groups() const { return (count_ + steps_ - 1) / steps_; }
  int64_t first(int64_t group) const { return least(group * steps_, count_); }
  const int8_t* x(int64_t step) const {
    return halves_ ? x_ + (step >> 1) * kMaxTileBytes + (step & 1) * (kTileInputs / 2) : x_ + step * kMaxTileBytes;
  }
  const int8_t* weights(int64_t step) const {
    return halves_ ? tiles_.at(block_, step >> 1) + (step & 1) * (kMaxTileBytes / 2) : tiles_.at(block_, step);
  }
  [[gnu::always_inline]] void reach(int64_t step) {
    if (!halves_) return tiles_.reach(step);
    if (!(step & 1)) tiles_.reach(step >> 1);
  }
  [[gnu::always_inline]] void add(const int32_t* dots) {
    sums_.add(weights_, activations_, index_++, first_group_ + scale_.next(), row_, dots);
  }
  void add_to(float* out, int64_t rows) const { sums_.add_to(out, rows); }

 private:
  const SpanWeights& weights_;
  int block_;
  const IntegerActivations& activations_;
  Tiles& tiles_;
  Sums sums_;
  ScaleOf scale_;
  int64_t first_group_;
  const int8_t* x_;
  int64_t row_, steps_, count_, index_ = 0;
  bool halves_;
};

// Two blocks go together, and two lots, or the two digits of one lot, where there are so many: every tile loaded is
// used twice. Ready tiles of short segments, whose sums have to be scaled after each product, go one by one.
template <class Unit, class Tiles>
class Int8Multiplier {
 public:
  Int8Multiplier(const IntegerProduct& product, Tiles& tiles)
      : product_(product),
        tiles_(tiles),
        inputs_(product.x.segment == kTileInputs / 2 ? kTileInputs / 2 : kTileInputs) {}

  void run() {
    const int64_t rows = product_.x.batch;
    unit_.begin(static_cast<int>(least<int64_t>(rows, kTileRows)), inputs_);
    const int64_t at_once = digits() ? kTileRows : 2 * kTileRows;
    for (int64_t row = 0; row < rows; row += at_once) {
      digits() || row + kTileRows < rows ? run_lots<true>(row) : run_lots<false>(row);
    }
    unit_.end();
  }

 private:
  using Sums = float[2][kTileRows * kBlockNeurons];  // of a span, for each lot

  bool digits() const { return product_.x.digit_count == 2; }

  template <bool lots>
  void run_lots(int64_t row) {
    constexpr int64_t kShort = 2 * kTileInputs;
    const int blocks = product_.weights[1] ? 2 : 1;
    const bool one_by_one = Tiles::kReady ? !lots || (!digits() && product_.x.segment < kShort) : !lots && blocks == 1;
    if (!one_by_one) return blocks == 2 ? run_blocks<lots, true>(row) : run_blocks<lots, false>(row);
    for (int lot = 0; lot < 1 + lots; ++lot) {
      for (int block = 0; block < blocks; ++block) run_one(block, row + lot * kTileRows);
    }
  }

  void run_one(int block, int64_t row) {
    if (product_.weights[block]->zeros) {
      product_.x.units ? run_one<true, true>(block, row) : run_one<false, true>(block, row);
    } else {
      product_.x.units ? run_one<true, false>(block, row) : run_one<false, false>(block, row);
    }
  }

  template <bool units, bool zeros>
  void run_one(int block, int64_t row) {
    Int8Lot<typename Unit::template Sums<units, zeros>, Tiles> lot(product_, tiles_, block, row, inputs_);
    multiply_lot(unit_, lot);
    lot.add_to(product_.out[block] + row * kBlockNeurons, least<int64_t>(product_.x.batch - row, kTileRows));
  }

  template <bool lots, bool blocks>
  void run_blocks(int64_t row) {
    alignas(64) Sums sums[2] = {};
    const SpanWeights& weights = *product_.weights[0];
    tiles_.reach(0);
    for_segments(weights, product_.x, [&](const Segment& segment) {
      clear_sums<Unit, lots, blocks>(unit_);
      for (int64_t input = segment.begin; input < segment.end; input += inputs_) step<lots, blocks>(row, input);
      finish<lots, 0, 2>(*product_.weights[0], segment, row, sums[0]);
      if constexpr (blocks) finish<lots, 1, 3>(*product_.weights[1], segment, row, sums[1]);
    });
    for (int block = 0; block < 1 + blocks; ++block) add_to(sums[block], row, product_.out[block]);
  }

  template <bool lots, bool blocks>
  [[gnu::always_inline]] void step(int64_t row, int64_t input) {
    const int64_t tile = input / kTileInputs, rest = input % kTileInputs, at = rest * kBlockNeurons;
    const int64_t lot = row / kTileRows * (digits() ? 2 : 1);
    const int8_t* x = product_.x.digits[0] + lot * product_.lot_stride + tile * kMaxTileBytes + rest;
    if (!rest) tiles_.reach(tile + 1);
    add_tiles<Unit, lots, blocks>(unit_, x, x + product_.lot_stride, tiles_.at(0, tile) + at,
                                  blocks ? tiles_.at(1, tile) + at : nullptr);
  }

  template <bool lots, int first, int second>
  void finish(const SpanWeights& weights, const Segment& segment, int64_t row, Sums& sums) {
    alignas(64) int32_t high[kTileRows * kBlockNeurons], low[kTileRows * kBlockNeurons];
    unit_.template store<first>(high);
    if constexpr (lots) unit_.template store<second>(low);
    finish_lot(weights, segment, row, high, digits() ? low : nullptr, sums[0]);
    if (lots && !digits()) finish_lot(weights, segment, row + kTileRows, low, nullptr, sums[1]);
  }

  void finish_lot(const SpanWeights& weights, const Segment& segment, int64_t row, const int32_t* high,
                  const int32_t* low, float* sums) {
    const int64_t rows = least<int64_t>(product_.x.batch - row, kTileRows);
    Unit::finish_rows(weights, product_.x, segment, row, rows, high, low, sums);
  }

  void add_to(const Sums& sums, int64_t row, float* out) const {
    const int64_t rows = least<int64_t>(product_.x.batch - row, digits() ? kTileRows : 2 * kTileRows);
    const float* all = sums[0];
    for (int64_t i = 0; i < rows * kBlockNeurons; ++i) out[row * kBlockNeurons + i] += all[i];
  }

  const IntegerProduct& product_;
  Tiles& tiles_;
  const int inputs_;
  Unit unit_;
};

}  // namespace
}  // namespace tilepress
