// One or two blocks × one or two row panels of activations. Each tile is decoded into a small buffer while the matrix
// unit multiplies the one before, so that neither memory nor the unit waits for the other.
//
// Unit: see bf16_row_panels.h. A Decoder provides
//   next(tile)          decodes the next tile
//   assumption_held()   optional; false at the end if its tiles were wrong
#pragma once

#include "linear/bf16_row_panels.h"

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
    const auto scales = [&](int64_t block) { return all.scales ? all.scales + block * kBlockNeurons : nullptr; };
    product_ = {{},
                {scales(index), scales(index + (two ? 1 : 0))},
                all.tiles,
                all.x,
                {all.out + index * sums, all.out + (index + 1) * sums}};
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
    add_row_panel<Unit, 0>(unit_, product_, 0, 0);
    if constexpr (two_blocks) add_row_panel<Unit, 1>(unit_, product_, 1, 0);
    if constexpr (two_row_panels) add_row_panel<Unit, 2>(unit_, product_, 0, 1);
    if constexpr (two_row_panels && two_blocks) add_row_panel<Unit, 3>(unit_, product_, 1, 1);
    return true;
  }

  template <bool two_blocks>
  [[gnu::always_inline]] void decode(int64_t tile) {
    one_.next(buffers_[tile % 2][0]);
    if constexpr (two_blocks) two_->next(buffers_[tile % 2][1]);
  }

  Unit& unit_;
  const Bf16Blocks& all_;
  Bf16Product product_;
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
