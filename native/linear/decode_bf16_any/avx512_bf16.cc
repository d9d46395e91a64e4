#include "linear/bf16_tiles_avx512.h"

namespace tilepress {
namespace {

int64_t decode_bf16_any(const KPanel& weights, bool scaled, uint16_t* tiles, uint8_t* scratch) {
  unpack_dense_bytes(weights, scratch);
  const int64_t inputs = weights.tiles * tile_inputs(weights.operand_bits);
  int64_t consumed = 0;
  const bool done = with_tile_decoder(weights, scaled, [&]<class Decoder>() {
    Decoder decoder(weights, scratch);
    for (int64_t input = 0; input < inputs; input += tile_inputs(16)) decoder.next(tiles + input * kBlockNeurons);
    consumed = decoder.consumed();
  });
  return done ? consumed : decode_any<Vbmi2>(weights, scaled, tiles, scratch);
}

TILEPRESS_KERNEL(decode_bf16_any);

}  // namespace
}  // namespace tilepress
