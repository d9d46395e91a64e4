// Every tile of weights is decoded into a small buffer while the matrix unit multiplies those before.
#include "kernels/bf16_tiles_avx512.h"
#include "kernels/multiply_f32_bf16_groups/amx_groups.h"

namespace tilepress {
namespace {

template <class Decoder>
class DecodedTiles {
 public:
  DecodedTiles(Decoder& decoder, int64_t count) : decoder_(decoder), count_(count) {}

  [[gnu::always_inline]] void reach(int64_t tile) {
    if (tile < count_) decoder_.next(buffers_[tile & (kBuffers - 1)]);
  }
  const uint16_t* at(int64_t tile) const { return buffers_[tile & (kBuffers - 1)]; }

 private:
  static constexpr int kBuffers = 4;
  Decoder& decoder_;
  int64_t count_;
  alignas(64) uint16_t buffers_[kBuffers][kMaxTileBytes / 2];
};

}  // namespace

// Codes of more than six bits are left to other ways: their scales are few beside them.
bool amx::linear_bf16_groups(const GroupProduct& product, int64_t* taken, uint8_t* scratch) {
  const SpanWeights& weights = *product.weights;
  const float* scales = group_scales(weights, scratch);
  uint8_t* rest = scratch + (weights.tiles + 1) * kMaxTileBytes;
  unpack_dense_bytes(weights, rest);
  return with_small_rows(weights, [&]<class Source, class Values>() {
    using Decoder = TileDecoder<Source, Values, ScaleType::none>;
    Decoder decoder(weights, rest);
    DecodedTiles<Decoder> tiles(decoder, product.count);
    multiply_groups(product, tiles, scales);
    *taken = decoder.taken();
  });
}

}  // namespace tilepress
