#include "kernels/decode_bf16_any/decode_span.h"
#include "kernels/multiply_f32_bf16_groups/plain_groups.h"
#include "kernels/unpack/scalar.h"

namespace tilepress {

bool portable::linear_bf16_groups(const GroupProduct& product, int64_t* taken, uint8_t* scratch) {
  const SpanWeights& weights = *product.weights;
  ReadyScales scales(group_scales(weights, scratch));
  uint8_t* memory = scratch + (weights.tiles + 1) * kMaxTileBytes;
  auto* tiles = reinterpret_cast<uint16_t*>(memory + span_scratch_bytes(weights.tiles));
  *taken = decode_any<Scalar>(weights, false, tiles, memory);
  ReadyTiles ready(tiles);
  if (*taken >= 0) GroupMultiplier<Bf16Unit, PlainSums, ReadyTiles, ReadyScales>(product, ready, scales).run();
  return true;
}

}  // namespace tilepress
