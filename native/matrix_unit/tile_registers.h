// Use of a matrix unit's eight tile registers, so that every tile loaded is used twice:
//   0 … 3  accumulators: 0, 1 of the first row panel with blocks 0 and 1; 2, 3 of the second
//   4, 5   activations of two row panels
//   6, 7   weights of two blocks
//
// A Unit (AMX, or its emulator) provides
//   begin(rows, row_bytes, next_rows)  configures activation tiles: rows of the first and of the second row panel
//                                      (default: as many), and bytes per row
//   end()                              releases the tile registers
//   zero<tile>(), load<tile>(from, stride = 64)
//   load_sums<tile>(from), store<tile>(to)   accumulators, [16, 16]
//   add_product<sum, x, weights>()     sum += x · weights
#pragma once

#include "quantize/scales.h"

namespace tilepress {
namespace {

// Whether a tile register belongs to the second row panel.
constexpr bool is_next_row_panel(int tile) { return tile == 2 || tile == 3 || tile == 5; }

// Clears the accumulators of one or two row panels × one or two blocks.
template <class Unit, bool two_row_panels, bool two_blocks>
[[gnu::always_inline]] inline void clear_sums(Unit& unit) {
  unit.template zero<0>();
  if constexpr (two_blocks) unit.template zero<1>();
  if constexpr (two_row_panels) unit.template zero<2>();
  if constexpr (two_row_panels && two_blocks) unit.template zero<3>();
}

// Accumulates one tile of each row panel × one tile of each block.
template <class Unit, bool two_row_panels, bool two_blocks>
[[gnu::always_inline]] inline void add_tiles(Unit& unit, const void* x, const void* next_x, const void* weights,
                                             const void* next_weights, int64_t x_stride = kVectorBytes) {
  // As few registers as possible: the two threads of a core share a pool of physical ones.
  constexpr int kNext = two_row_panels ? 7 : 6;
  unit.template load<4>(x, x_stride);
  unit.template load<6>(weights);
  unit.template add_product<0, 4, 6>();
  if constexpr (two_blocks) unit.template load<kNext>(next_weights);
  if constexpr (two_blocks) unit.template add_product<1, 4, kNext>();
  if constexpr (two_row_panels) unit.template load<5>(next_x, x_stride);
  if constexpr (two_row_panels) unit.template add_product<2, 5, 6>();
  if constexpr (two_row_panels && two_blocks) unit.template add_product<3, 5, kNext>();
}

}  // namespace
}  // namespace tilepress
