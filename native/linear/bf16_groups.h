// Row panels of activations × one block, with scales applied per group. Accumulators stay in registers over the
// K-panel.
//
// Sums<rows>, the accumulators of a row panel, provides
//   Sums(from [rows, 16]), store(to)
//   add(products [rows, 16], scales [16])
// Tiles, those of the block:
//   prepare(tile)         see WholeTiles in group_pipeline.h
//   at(tile)              address
// Scales, those of the K-panel:
//   next(index)           [16] floats; called once per group
//   until_break(), on_break(next index)   see group_pipeline.h
#pragma once

#include "matrix_unit/group_pipeline.h"

namespace tilepress {
namespace {

// Tiles decoded before.
class PredecodedTiles {
 public:
  explicit PredecodedTiles(const uint16_t* tiles) : tiles_(tiles) {}
  void prepare(int64_t) {}
  const uint16_t* at(int64_t tile) const { return tiles_ + tile * (kMaxTileBytes / 2); }

 private:
  const uint16_t* tiles_;
};

// Scales converted to float32 before.
class PreloadedScales {
 public:
  explicit PreloadedScales(const float* scales) : scales_(scales) {}
  const float* next(int64_t index) const { return scales_ + index * kBlockNeurons; }
  static int64_t until_break() { return kNoBreak; }
  static void on_break(int64_t) {}

 private:
  const float* scales_;
};

// The groups of weights that a K-panel overlaps.
struct KPanelGroups {
  explicit KPanelGroups(const KPanel& weights) {
    first = weights.first / weights.format->group;
    count = (weights.first + weights.inputs - 1) / weights.format->group + 1 - first;
  }
  int64_t first, count;
};

// A RowPanel of group_pipeline.h. Groups: WholeTiles or SingleTiles.
template <class Sums, class Tiles, class Scales, class Groups>
class Bf16RowPanel {
 public:
  using Product = float;

  Bf16RowPanel(const GroupProduct& product, Tiles& tiles, Scales& scales, int64_t row)
      : weights_(tiles),
        sums_(product.sums + row * kBlockNeurons),
        scale_(*product.weights, product.group),
        scales_(scales),
        x_(product.x.first + row / kTileRows * product.x.row_panel_stride),
        tile_stride_(product.x.tile_stride),
        x_stride_(product.x.row_stride * int64_t{sizeof *x_}),
        rows_(least<int64_t>(product.x.rows - row, kTileRows)),
        groups_(product.count, product.group / tile_inputs(16)) {}

  int64_t groups() const { return groups_.groups(); }
  int64_t rows() const { return rows_; }
  template <int tile, class Unit>
  [[gnu::always_inline]] void multiply(Unit& unit) {
    groups_.template multiply<tile>(unit, *this);
  }
  const uint16_t* x(int64_t tile) const { return x_ + tile * tile_stride_; }
  int64_t x_stride() const { return x_stride_; }
  const uint16_t* weights(int64_t tile) const { return weights_.at(tile); }
  [[gnu::always_inline]] void prepare(int64_t tile) { weights_.prepare(tile); }
  [[gnu::always_inline]] void add(const float* products) { sums_.add(products, scales_.next(scale_.next())); }
  int64_t until_break() const { return scales_.until_break(); }
  [[gnu::always_inline]] void on_break() { scales_.on_break(scale_.current()); }
  void store(float* to) const { sums_.store(to); }

 private:
  Tiles& weights_;
  Sums sums_;
  ScaleIndex scale_;
  Scales& scales_;
  const uint16_t* x_;
  int64_t tile_stride_, x_stride_, rows_;
  Groups groups_;
};

template <class Unit, template <int> class Sums, class Tiles, class Scales>
class GroupMultiplier {
 public:
  GroupMultiplier(const GroupProduct& product, Tiles& tiles, Scales& scales)
      : product_(product), tiles_(tiles), scales_(scales) {}

  void run() {
    Unit unit;
    const int64_t rows = product_.x.rows;
    unit.begin(static_cast<int>(least<int64_t>(rows, kTileRows)), kVectorBytes);
    for (int64_t row = 0; row < rows; row += kTileRows) {
      rows - row > kFewRows ? run_rows<kTileRows>(unit, row) : run_rows<kFewRows>(unit, row);
    }
    unit.end();
  }

 private:
  static constexpr int kFewRows = 4;

  template <int rows>
  void run_rows(Unit& unit, int64_t row) {
    product_.group == tile_inputs(16) ? run_row_panel<rows, SingleTiles>(unit, row)
                                      : run_row_panel<rows, WholeTiles>(unit, row);
  }

  template <int rows, class Groups>
  void run_row_panel(Unit& unit, int64_t row) {
    Bf16RowPanel<Sums<rows>, Tiles, Scales, Groups> row_panel(product_, tiles_, scales_, row);
    multiply_row_panel(unit, row_panel);
    row_panel.store(product_.sums + row * kBlockNeurons);
  }

  const GroupProduct& product_;
  Tiles& tiles_;
  Scales& scales_;
};

}  // namespace
}  // namespace tilepress
