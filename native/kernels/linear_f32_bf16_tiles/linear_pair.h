// One or two blocks times one or two lots of activations, over a whole span: every tile of weights is decoded into a
// small buffer while the matrix unit multiplies the one before, so that neither memory nor the unit waits for the
// other. In a nameless namespace for the reason that pack_block.h gives. Unit is that of multiply_lots.h; Decoder
// brings next(tile), and may bring holds(): in the end, whether what it gave was right.
#pragma once

#include "kernels/multiply_f32_bf16_bf16/multiply_lots.h"

namespace tilepress {
namespace {

template <class Unit, class Decoder>
class PairMultiplier {
 public:
  PairMultiplier(const Bf16Product& product, Decoder& one, Decoder* two) : product_(product), one_(one), two_(two) {}

  // False, with nothing added, where a decoder was wrong.
  bool run() {
    unit_.begin(static_cast<int>(least<int64_t>(product_.rows, kTileRows)), kVectorBytes);
    const bool lots = product_.rows > kTileRows;
    const bool held = lots ? (two_ ? run_with<true, true>() : run_with<true, false>())
                           : (two_ ? run_with<false, true>() : run_with<false, false>());
    unit_.end();
    return held;
  }

 private:
  static constexpr int kTile = kMaxTileBytes / 2;  // values

  template <bool lots, bool blocks>
  bool run_with() {
    clear_sums<Unit, lots, blocks>(unit_);
    decode<blocks>(0);
    for (int64_t tile = 0; tile < product_.count; ++tile) {
      if (tile + 1 < product_.count) decode<blocks>(tile + 1);
      const uint16_t* x = product_.x + tile * kTile;
      const auto& buffer = buffers_[tile % 2];
      add_tiles<Unit, lots, blocks>(unit_, x, x + product_.lot_stride, buffer[0], buffer[1]);
    }
    if constexpr (requires { one_.holds(); }) {
      if (!one_.holds() || (blocks && !two_->holds())) return false;
    }
    add_lot<Unit, 0>(unit_, product_, 0, 0);
    if constexpr (blocks) add_lot<Unit, 1>(unit_, product_, 1, 0);
    if constexpr (lots) add_lot<Unit, 2>(unit_, product_, 0, 1);
    if constexpr (lots && blocks) add_lot<Unit, 3>(unit_, product_, 1, 1);
    return true;
  }

  template <bool blocks>
  [[gnu::always_inline]] void decode(int64_t tile) {
    one_.next(buffers_[tile % 2][0]);
    if constexpr (blocks) two_->next(buffers_[tile % 2][1]);
  }

  const Bf16Product& product_;
  Decoder& one_;
  Decoder* two_;
  Unit unit_;
  alignas(64) uint16_t buffers_[2][2][kTile];
};

}  // namespace
}  // namespace tilepress
