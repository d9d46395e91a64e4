// Products of decoded tiles on a matrix unit of eight tile registers: two blocks of weights (tiles 6, 7), two row
// panels of 16 rows of activations (4, 5), and their four products (0 to 3), so that every tile loaded is used twice.
// Unit brings
//   begin(rows, inputs, next_rows): ready for activations of `rows` rows, those of a second row panel of as many if not
//   said, and tiles of `inputs` bytes a row; end() zero<tile>(), load<tile>(from, bytes from a row to the next: 64),
//   add_product<sum, x, weights>(), store<tile>(to)
#pragma once

#include "quantize/scales.h"

namespace tilepress {
namespace {

// Whether a tile register is the second row panel's.
constexpr bool is_next_row_panel(int tile) { return tile == 2 || tile == 3 || tile == 5; }

// Clears the sums of one or two row panels with one or two blocks.
template <class Unit, bool row_panels, bool blocks>
[[gnu::always_inline]] inline void clear_sums(Unit& unit) {
  unit.template zero<0>();
  if constexpr (blocks) unit.template zero<1>();
  if constexpr (row_panels) unit.template zero<2>();
  if constexpr (row_panels && blocks) unit.template zero<3>();
}

// One tile of each row panel times one of each block.
template <class Unit, bool row_panels, bool blocks>
[[gnu::always_inline]] inline void add_tiles(Unit& unit, const void* x, const void* next_x, const void* weights,
                                             const void* next_weights, int64_t x_stride = kVectorBytes) {
  constexpr int kNext =
      row_panels ? 7 : 6;  // as few registers as will do: those of a core's threads come from one pool
  unit.template load<4>(x, x_stride);
  unit.template load<6>(weights);
  unit.template add_product<0, 4, 6>();
  if constexpr (blocks) unit.template load<kNext>(next_weights);
  if constexpr (blocks) unit.template add_product<1, 4, kNext>();
  if constexpr (row_panels) unit.template load<5>(next_x, x_stride);
  if constexpr (row_panels) unit.template add_product<2, 5, 6>();
  if constexpr (row_panels && blocks) unit.template add_product<3, 5, kNext>();
}

}  // namespace
}  // namespace tilepress
