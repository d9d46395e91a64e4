// Each tile is decoded into a small ring buffer while the matrix unit multiplies those before it.
#include "linear/int8_row_panels.h"
#include "linear/int8_tiles_avx512.h"
#include "matrix_unit/amx_int8.h"

namespace tilepress {
namespace {

template <class Decoder, class Unit>
class StreamedTiles {
 public:
  static constexpr bool kPredecoded = false;
  static constexpr bool kStepped = std::is_same_v<Unit, SteppedUnit<true>>;
  static constexpr int kFactor = Decoder::kHigh && !kStepped ? 16 : 1;
  static constexpr HasZeroPoints kHasZeroPoints = kStepped ? HasZeroPoints::always : Decoder::kHasZeroPoints;

  StreamedTiles(const IntegerProduct& product, Decoder& one, Decoder& two)
      : one_(one), two_(two), count_(product.weights[0]->tiles) {}

  template <bool both>
  [[gnu::always_inline]] void prepare(int64_t tile) {
    if (tile >= count_) return;
    one_.next(buffers_[tile & (kBuffers - 1)][0]);
    if constexpr (both) two_.next(buffers_[tile & (kBuffers - 1)][1]);
  }
  const int8_t* at(int block, int64_t tile) const { return buffers_[tile & (kBuffers - 1)][block]; }

 private:
  static constexpr int kBuffers = 4;
  Decoder &one_, &two_;
  int64_t count_;
  alignas(64) int8_t buffers_[kBuffers][2][kMaxTileBytes];
};

void linear_f32_i8_int_tiles(const IntegerBlocks& all, int64_t* consumed, uint8_t* scratch) {
  const KPanel& any = all.blocks[0];
  const auto run_as = [&]<class Decoder, class Unit>() {
    using Tiles = StreamedTiles<Decoder, Unit>;
    using Multiplier = Int8Multiplier<Unit, Tiles>;
    Unit unit;
    Multiplier::begin(unit, all.x);
    for_products(all, [&](const IntegerProduct& product, int64_t index) {
      const KPanel &one = *product.weights[0], &two = product.weights[1] ? *product.weights[1] : one;
      Decoder first(one, scratch), second(two, scratch + k_panel_scratch_bytes(two.tiles));
      Tiles tiles(product, first, second);
      Multiplier(unit, product, tiles).run();
      consumed[index] = first.consumed();
      if (product.weights[1]) consumed[index + 1] = second.consumed();
    });
    unit.end();
  };
  using HighNonzeros = NonzerosAhead<HighNibbleFields>;
  if (SteppedUnit<true>::accepts(any, all.x)) {
    return any.mask ? run_as.template operator()<SparseTiles<HighNonzeros, true>, SteppedUnit<true>>()
                    : run_as.template operator()<HighNibbles, SteppedUnit<true>>();
  }
  if (uses_high_nibbles(any)) {
    return any.mask ? run_as.template operator()<SparseTiles<HighNonzeros, false>, Int8Unit>()
                    : run_as.template operator()<HighNibbles, Int8Unit>();
  }
  with_int8_decoder(any, [&]<class Decoder>() { run_as.template operator()<Decoder, Int8Unit>(); });
}

TILEPRESS_KERNEL(linear_f32_i8_int_tiles);

}  // namespace
}  // namespace tilepress
