// One or two blocks × one or two row panels of activations. Each tile is decoded into a small buffer while the matrix
// unit multiplies the one before, so that neither memory nor the unit waits for the other.
//
// Unit: see tile_registers.h; it also provides
//   add_scaled(sums [16, 16], scales or null, rows, out)   out [rows, 16] += sums · scales
// A Decoder provides
//   next(tile)          decodes the next tile
//   assumption_held()   optional; false at the end if its tiles were wrong
#pragma once

#include "matrix_unit/tile_registers.h"

namespace tilepress {
namespace {

template <class Unit>
void begin_blocks(Unit& unit, const Bf16Blocks& all) {
  const int rows = static_cast<int>(all.x.rows);
  unit.begin(least(rows, kTileRows), kVectorBytes, rows > kTileRows ? rows - kTileRows : rows);
}

// Block `index`, and the next one unless `two` is null.
template <class Unit, class Decoder>
class PairMultiplier {
 public:
  PairMultiplier(Unit& unit, const Bf16Blocks& all, int64_t index, Decoder& one, Decoder* two)
      : unit_(unit), all_(all), one_(one), two_(two) {
    const int64_t sums = (all.x.rows + kTileRows - 1) / kTileRows * kTileRows * kBlockNeurons;
    for (int i = 0; i < (two ? 2 : 1); ++i) {
      scales_[i] = all.scales ? all.scales + (index + i) * kBlockNeurons : nullptr;
      out_[i] = all.out + (index + i) * sums;
    }
  }

  // False, with nothing added, if a decoder's assumption did not hold.
  bool run() {
    if (all_.x.rows > kTileRows) return two_ ? run_with<true, true>() : run_with<true, false>();
    return two_ ? run_with<false, true>() : run_with<false, false>();
  }

 private:
  static constexpr int kTile = kMaxTileBytes / 2;  // values

  template <bool two_row_panels, bool two_blocks>
  bool run_with() {
    clear_sums<Unit, two_row_panels, two_blocks>(unit_);
    decode<two_blocks>(0);
    const uint16_t* x = all_.x.first;
    const int64_t count = all_.tiles, next = all_.x.row_panel_stride, step = all_.x.tile_stride;
    const int64_t stride = all_.x.row_stride * int64_t{sizeof *x};
    for (int64_t tile = 0; tile < count; ++tile, x += step) {
      if (tile + 1 < count) decode<two_blocks>(tile + 1);
      const auto& buffer = buffers_[tile % 2];
      add_tiles<Unit, two_row_panels, two_blocks>(unit_, x, x + next, buffer[0], buffer[1], stride);
    }
    if constexpr (requires { one_.assumption_held(); }) {
      if (!one_.assumption_held() || (two_blocks && !two_->assumption_held())) return false;
    }
    add_row_panel<0>(0, 0);
    if constexpr (two_blocks) add_row_panel<1>(1, 0);
    if constexpr (two_row_panels) add_row_panel<2>(0, 1);
    if constexpr (two_row_panels && two_blocks) add_row_panel<3>(1, 1);
    return true;
  }

  // Adds an accumulator to the outputs of one block and row panel.
  template <int tile>
  void add_row_panel(int block, int64_t row_panel) {
    alignas(64) float sums[kTileRows * kBlockNeurons];
    unit_.template store<tile>(sums);
    const int64_t rows = least<int64_t>(all_.x.rows - row_panel * kTileRows, kTileRows);
    Unit::add_scaled(sums, scales_[block], static_cast<int>(rows), out_[block] + row_panel * kTileRows * kBlockNeurons);
  }

  template <bool two_blocks>
  [[gnu::always_inline]] void decode(int64_t tile) {
    one_.next(buffers_[tile % 2][0]);
    if constexpr (two_blocks) two_->next(buffers_[tile % 2][1]);
  }

  Unit& unit_;
  const Bf16Blocks& all_;
  const float* scales_[2] = {};
  float* out_[2] = {};
  Decoder& one_;
  Decoder* two_;
  alignas(64) uint16_t buffers_[2][2][kTile];
};

// Calls work(index, two) for all blocks, `two` if block index + 1 goes with it; stops if work returns false.
template <class Work>
bool for_pairs(int64_t count, bool in_pairs, const Work& work) {
  for (int64_t index = 0; index < count;) {
    const bool two = in_pairs && index + 1 < count;
    if (!work(index, two)) return false;
    index += two ? 2 : 1;
  }
  return true;
}

}  // namespace
}  // namespace tilepress
