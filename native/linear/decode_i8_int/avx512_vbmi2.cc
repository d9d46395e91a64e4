#include "linear/int8_tiles_avx512.h"

namespace tilepress {
namespace {

int64_t decode_i8_int(const SpanWeights& weights, int8_t* tiles, uint8_t* scratch) {
  int64_t taken = 0;
  with_int8_decoder(weights, [&]<class Decoder>() {
    Decoder decoder(weights, scratch);
    for (int64_t tile = 0; tile < weights.tiles; ++tile) decoder.next(tiles + tile * kMaxTileBytes);
    taken = decoder.taken();
  });
  return taken;
}

TILEPRESS_KERNEL(decode_i8_int);

}  // namespace
}  // namespace tilepress
