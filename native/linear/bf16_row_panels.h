// Row panels of activations times blocks of weights over a K-panel, in bf16. Unit is what tile_registers.h asks for,
// and brings
//   add_scaled(sums [16][16], scales or null, rows, out)
#pragma once

#include "matrix_unit/tile_registers.h"

namespace tilepress {
namespace {

// Adds what a tile register has summed to the outputs of one block and row panel.
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

  template <bool row_panels>
  void run_row_panels(int64_t row_panel) {
    product_.tiles[1] ? run_blocks<row_panels, true>(row_panel) : run_blocks<row_panels, false>(row_panel);
  }

  template <bool row_panels, bool blocks>
  void run_blocks(int64_t row_panel) {
    const uint16_t *x = product_.x.first + row_panel * product_.x.row_panel_stride,
                   *next = x + product_.x.row_panel_stride;
    const uint16_t *one = product_.tiles[0], *two = product_.tiles[1];
    clear_sums<Unit, row_panels, blocks>(unit_);
    for (int64_t tile = 0; tile < product_.count; ++tile) {
      const int64_t at = tile * kTile;
      add_tiles<Unit, row_panels, blocks>(unit_, x + at, next + at, one + at, two + (blocks ? at : 0));
    }
    add_row_panel<Unit, 0>(unit_, product_, 0, row_panel);
    if constexpr (blocks) add_row_panel<Unit, 1>(unit_, product_, 1, row_panel);
    if constexpr (row_panels) add_row_panel<Unit, 2>(unit_, product_, 0, row_panel + 1);
    if constexpr (row_panels && blocks) add_row_panel<Unit, 3>(unit_, product_, 1, row_panel + 1);
  }

  const Bf16Product& product_;
  Unit unit_;
};

}  // namespace
}  // namespace tilepress
