// Products of decoded tiles on a matrix unit of eight tile registers: two blocks of weights (tiles 6, 7), two lots of 16
// rows of activations (4, 5), and their four products (0 to 3), so that every tile loaded is used twice. In a nameless
// namespace for the reason that pack_block.h gives. Unit brings
//   begin(rows): ready, for activations of `rows` rows a tile; end()
//   zero<tile>(), load<tile>(from, stride), add_product<sum, x, weights>(), store<tile>(to, stride): strides in bytes
//   Operand: the type of an activation; kInputs: how many a tile row of them holds
//   add_scaled(sums [rows][16], scales or null, rows, out)
#pragma once

#include "kernels/scales.h"

namespace tilepress {
namespace {

template <class Unit>
class TileMultiplier {
 public:
  explicit TileMultiplier(const TileProduct& product)
      : product_(product), rows_(static_cast<int>(least<int64_t>(product.batch, kTileRows))) {}

  void run() {
    unit_.begin(rows_);
    int64_t row = 0;
    for (; row + 2 * kTileRows <= product_.batch; row += 2 * kTileRows) run_rows<true>(row);
    if (row < product_.batch) run_rows<false>(row);
    unit_.end();
  }

 private:
  template <bool both>
  void run_rows(int64_t row) {
    product_.tiles[1] ? run_blocks<both, true>(row) : run_blocks<both, false>(row);
  }

  template <bool rows, bool blocks>
  void run_blocks(int64_t row) {
    for (int64_t tile = 0; tile < product_.count;) {
      const int64_t segment = tile / product_.segment;
      const int64_t end = least((segment + 1) * product_.segment, product_.count);
      clear<rows, blocks>();
      for (; tile < end; ++tile) step<rows, blocks>(row, tile);
      finish<rows, blocks>(row, segment);
    }
  }

  template <bool rows, bool blocks>
  void clear() {
    unit_.template zero<0>();
    if constexpr (blocks) unit_.template zero<1>();
    if constexpr (rows) unit_.template zero<2>();
    if constexpr (rows && blocks) unit_.template zero<3>();
  }

  template <bool rows, bool blocks>
  [[gnu::always_inline]] void step(int64_t row, int64_t tile) {
    const auto* x = static_cast<const typename Unit::Operand*>(product_.x) + row * product_.stride + tile * Unit::kInputs;
    const int64_t stride = product_.stride * static_cast<int64_t>(sizeof(*x));
    unit_.template load<4>(x, stride);
    unit_.template load<6>(weights(0, tile), kVectorBytes);
    unit_.template add_product<0, 4, 6>();
    if constexpr (blocks) unit_.template load<7>(weights(1, tile), kVectorBytes);
    if constexpr (blocks) unit_.template add_product<1, 4, 7>();
    if constexpr (rows) unit_.template load<5>(x + kTileRows * product_.stride, stride);
    if constexpr (rows) unit_.template add_product<2, 5, 6>();
    if constexpr (rows && blocks) unit_.template add_product<3, 5, 7>();
  }

  const uint8_t* weights(int block, int64_t tile) const {
    return static_cast<const uint8_t*>(product_.tiles[block]) + tile * kMaxTileBytes;
  }

  template <bool rows, bool blocks>
  void finish(int64_t row, int64_t segment) {
    finish_one<0>(0, row, segment);
    if constexpr (blocks) finish_one<1>(1, row, segment);
    if constexpr (rows) finish_one<2>(0, row + kTileRows, segment);
    if constexpr (rows && blocks) finish_one<3>(1, row + kTileRows, segment);
  }

  template <int tile>
  void finish_one(int block, int64_t row, int64_t segment) {
    alignas(64) typename Unit::Sum sums[kTileRows * kBlockNeurons];
    unit_.template store<tile>(sums, kVectorBytes);
    const float* scales = product_.scales[block];
    Unit::add_scaled(sums, scales ? scales + segment * kBlockNeurons : nullptr, rows_,
                     product_.out[block] + row * kBlockNeurons);
  }

  const TileProduct& product_;
  const int rows_;
  Unit unit_;
};

}  // namespace
}  // namespace tilepress
