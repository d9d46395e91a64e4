// Lots of activations times blocks of weights over a span, in bf16. Unit is what tile_registers.h asks for, and brings
//   add_scaled(sums [16][16], scales or null, rows, out)
#pragma once

#include "matrix_unit/tile_registers.h"

namespace tilepress {
namespace {

// Adds what a tile register has summed to the outputs of one block and lot.
template <class Unit, int tile>
void add_lot(Unit& unit, const Bf16Product& product, int block, int64_t lot) {
  alignas(64) float sums[kTileRows * kBlockNeurons];
  unit.template store<tile>(sums);
  const int64_t rows = least<int64_t>(product.x.rows - lot * kTileRows, kTileRows);
  Unit::add_scaled(sums, product.scales[block], static_cast<int>(rows),
                   product.out[block] + lot * kTileRows * kBlockNeurons);
}

template <class Unit>
class Bf16Multiplier {
 public:
  explicit Bf16Multiplier(const Bf16Product& product) : product_(product) {}

  void run() {
    const int64_t rows = product_.x.rows;
    unit_.begin(static_cast<int>(least<int64_t>(rows, kTileRows)), kVectorBytes);
    int64_t lot = 0;
    for (; (lot + 1) * kTileRows < rows; lot += 2) run_lots<true>(lot);
    if (lot * kTileRows < rows) run_lots<false>(lot);
    unit_.end();
  }

 private:
  static constexpr int kTile = kMaxTileBytes / 2;  // values

  template <bool lots>
  void run_lots(int64_t lot) {
    product_.tiles[1] ? run_blocks<lots, true>(lot) : run_blocks<lots, false>(lot);
  }

  template <bool lots, bool blocks>
  void run_blocks(int64_t lot) {
    const uint16_t *x = product_.x.first + lot * product_.x.lot_stride, *next = x + product_.x.lot_stride;
    const uint16_t *one = product_.tiles[0], *two = product_.tiles[1];
    clear_sums<Unit, lots, blocks>(unit_);
    for (int64_t tile = 0; tile < product_.count; ++tile) {
      const int64_t at = tile * kTile;
      add_tiles<Unit, lots, blocks>(unit_, x + at, next + at, one + at, two + (blocks ? at : 0));
    }
    add_lot<Unit, 0>(unit_, product_, 0, lot);
    if constexpr (blocks) add_lot<Unit, 1>(unit_, product_, 1, lot);
    if constexpr (lots) add_lot<Unit, 2>(unit_, product_, 0, lot + 1);
    if constexpr (lots && blocks) add_lot<Unit, 3>(unit_, product_, 1, lot + 1);
  }

  const Bf16Product& product_;
  Unit unit_;
};

}  // namespace
}  // namespace tilepress
