#include "kernels/int8_tiles_avx512.h"

namespace tilepress {

int64_t avx512_vbmi2::decode_int8_span(const SpanWeights& weights, int8_t* tiles, uint8_t* scratch) {
  int64_t taken = 0;
  with_int8_decoder(weights, [&]<class Decoder>() {
    Decoder decoder(weights, scratch);
    for (int64_t tile = 0; tile < weights.tiles; ++tile) decoder.next(tiles + tile * kMaxTileBytes);
    taken = decoder.taken();
  });
  return taken;
}

}  // namespace tilepress
