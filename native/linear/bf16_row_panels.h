// Row panels of activations × one or two blocks of bf16 tiles over a K-panel. Unit: see tile_registers.h; it also
// provides
//   add_scaled(sums [16, 16], scales or null, rows, out)   out [rows, 16] += sums · scales
#pragma once

#include "matrix_unit/tile_registers.h"

namespace tilepress {
namespace {

// Adds an accumulator to the outputs of one block and row panel.
template <class Unit, int tile>
void add_row_panel(Unit& unit, const Bf16Product& product, int block, int64_t row_panel) {
  alignas(64) float sums[kTileRows * kBlockNeurons];
  unit.template store<tile>(sums);
  const int64_t rows = least<int64_t>(product.x.rows - row_panel * kTileRows, kTileRows);
  Unit::add_scaled(sums, product.scales[block], static_cast<int>(rows),
                   product.out[block] + row_panel * kTileRows * kBlockNeurons);
}

template <class Unit>
class Bf16Multiplier {
 public:
  explicit Bf16Multiplier(const Bf16Product& product) : product_(product) {}

  void run() {
    const int64_t rows = product_.x.rows;
    unit_.begin(static_cast<int>(least<int64_t>(rows, kTileRows)), kVectorBytes);
    int64_t row_panel = 0;
    for (; (row_panel + 1) * kTileRows < rows; row_panel += 2) run_row_panels<true>(row_panel);
    if (row_panel * kTileRows < rows) run_row_panels<false>(row_panel);
    unit_.end();
  }

 private:
  static constexpr int kTile = kMaxTileBytes / 2;  // values

  template <bool two_row_panels>
  void run_row_panels(int64_t row_panel) {
    product_.tiles[1] ? run_blocks<two_row_panels, true>(row_panel) : run_blocks<two_row_panels, false>(row_panel);
  }

  template <bool two_row_panels, bool two_blocks>
  void run_blocks(int64_t row_panel) {
    const uint16_t *x = product_.x.first + row_panel * product_.x.row_panel_stride,
                   *next = x + product_.x.row_panel_stride;
    const uint16_t *one = product_.tiles[0], *two = product_.tiles[1];
    clear_sums<Unit, two_row_panels, two_blocks>(unit_);
    for (int64_t tile = 0; tile < product_.count; ++tile) {
      const int64_t at = tile * kTile;
      add_tiles<Unit, two_row_panels, two_blocks>(unit_, x + at, next + at, one + at, two + (two_blocks ? at : 0));
    }
    add_row_panel<Unit, 0>(unit_, product_, 0, row_panel);
    if constexpr (two_blocks) add_row_panel<Unit, 1>(unit_, product_, 1, row_panel);
    if constexpr (two_row_panels) add_row_panel<Unit, 2>(unit_, product_, 0, row_panel + 1);
    if constexpr (two_row_panels && two_blocks) add_row_panel<Unit, 3>(unit_, product_, 1, row_panel + 1);
  }

  const Bf16Product& product_;
  Unit unit_;
};

}  // namespace
}  // namespace tilepress
