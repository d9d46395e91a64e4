// Row panels × blocks of tiles, two of each at a time, on a matrix unit. Unit: see tile_registers.h.
//
// Two blocks' tiles stay in the first cache for all row panels; sums are read and written where they lie, whole tile
// registers.
#pragma once

#include "matrix_unit/tile_registers.h"

namespace tilepress {
namespace {

template <class Unit>
class TileMultiplier {
 public:
  explicit TileMultiplier(const TileProduct& product)
      : product_(product),
        row_panels_((product.rows + kTileRows - 1) / kTileRows),
        ahead_(static_cast<const uint8_t*>(product.next_x)) {}

  void run() {
    unit_.begin(kTileRows, kVectorBytes);
    for (int64_t block = 0; block < product_.blocks; block += 2) {
      block + 1 < product_.blocks ? run_blocks<true>(block) : run_blocks<false>(block);
    }
    unit_.end();
  }

 private:
  static constexpr int64_t kLines = kMaxTileBytes / kVectorBytes;

  template <bool two_blocks>
  void run_blocks(int64_t block) {
    for (int64_t row_panel = 0; row_panel < row_panels_; row_panel += 2) {
      if (row_panel + 1 < row_panels_) {
        multiply<true, two_blocks>(block, row_panel);
      } else {
        multiply<false, two_blocks>(block, row_panel);
      }
      prefetch(block, row_panel);
    }
  }

  template <bool two_row_panels, bool two_blocks>
  [[gnu::always_inline]] void multiply(int64_t block, int64_t row_panel) {
    const auto* x = static_cast<const uint8_t*>(product_.x) + row_panel * product_.row_panel_stride;
    const uint8_t* next = x + (two_row_panels ? product_.row_panel_stride : 0);
    const auto* one = static_cast<const uint8_t*>(product_.tiles[block]);
    const auto* two = static_cast<const uint8_t*>(product_.tiles[block + two_blocks]);
    uint8_t* sums = static_cast<uint8_t*>(product_.sums) + block * product_.block_stride + row_panel * kMaxTileBytes;
    if (product_.first) {
      clear_sums<Unit, two_row_panels, two_blocks>(unit_);
    } else {
      load_sums<two_row_panels, two_blocks>(sums);
    }
#pragma GCC unroll 2
    for (int64_t at = 0; at < product_.count * kMaxTileBytes; at += kMaxTileBytes) {
      add_tiles<Unit, two_row_panels, two_blocks>(unit_, x + at, next + at, one + at, two + at);
    }
    store_sums<two_row_panels, two_blocks>(sums);
  }

  template <bool two_row_panels, bool two_blocks>
  [[gnu::always_inline]] void load_sums(const uint8_t* from) {
    const uint8_t* next = from + product_.block_stride;
    unit_.template load_sums<0>(from);
    if constexpr (two_blocks) unit_.template load_sums<1>(next);
    if constexpr (two_row_panels) unit_.template load_sums<2>(from + kMaxTileBytes);
    if constexpr (two_row_panels && two_blocks) unit_.template load_sums<3>(next + kMaxTileBytes);
  }

  template <bool two_row_panels, bool two_blocks>
  [[gnu::always_inline]] void store_sums(uint8_t* to) {
    uint8_t* next = to + product_.block_stride;
    unit_.template store<0>(to);
    if constexpr (two_blocks) unit_.template store<1>(next);
    if constexpr (two_row_panels) unit_.template store<2>(to + kMaxTileBytes);
    if constexpr (two_row_panels && two_blocks) unit_.template store<3>(next + kMaxTileBytes);
  }

  // After each two blocks × two row panels, an even share of what comes next.
  [[gnu::always_inline]] void prefetch(int64_t block, int64_t row_panel) const {
    prefetch_weights(block, row_panel);
    if (!ahead_) return;
    const int64_t pairs = (product_.blocks + 1) / 2, all = product_.count * kLines, pair = block / 2;
    for (int64_t i = row_panel; i < least(row_panel + 2, row_panels_); ++i) {
      const uint8_t* from = ahead_ + i * product_.row_panel_stride;
      for (int64_t line = all * pair / pairs; line < all * (pair + 1) / pairs; ++line) {
        __builtin_prefetch(from + line * kVectorBytes, 0, 2);
      }
    }
  }

  [[gnu::always_inline]] void prefetch_weights(int64_t block, int64_t row_panel) const {
    const int64_t all = product_.ahead_bytes / kVectorBytes, panels = row_panels_;
    const int64_t end = all * least(row_panel + 2, panels) / panels;
    for (int64_t i = block; all && i < least(block + 2, product_.blocks); ++i) {
      for (int64_t line = all * row_panel / panels; line < end; ++line) {
        __builtin_prefetch(product_.ahead[i] + line * kVectorBytes, 0, 2);
      }
    }
  }

  const TileProduct& product_;
  int64_t row_panels_;
  const uint8_t* ahead_;
  Unit unit_;
};

}  // namespace
}  // namespace tilepress
