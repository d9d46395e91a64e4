#include "linear/int8_tiles_avx512.h"

namespace tilepress {
namespace {

int64_t decode_i8_int(const KPanel& weights, int8_t* tiles, uint8_t* scratch) {
  int64_t consumed = 0;
  with_int8_decoder(weights, [&]<class Decoder>() {
    Decoder decoder(weights, scratch);
    for (int64_t tile = 0; tile < weights.tiles; ++tile) decoder.next(tiles + tile * kMaxTileBytes);
    consumed = decoder.consumed();
  });
  return consumed;
}

TILEPRESS_KERNEL(decode_i8_int);

}  // namespace
}  // namespace tilepress
