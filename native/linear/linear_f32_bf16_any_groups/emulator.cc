#include "linear/decode_bf16.h"
#include "matrix_unit/groups.h"
#include "pack/unpack_scalar.h"

namespace tilepress {
namespace {

bool linear_f32_bf16_any_groups(const GroupProduct& product, int64_t* consumed, uint8_t* scratch) {
  const KPanel& weights = *product.weights;
  PreloadedScales scales(group_scales(weights, scratch));
  uint8_t* memory = scratch + (weights.tiles + 1) * kMaxTileBytes;
  auto* tiles = reinterpret_cast<uint16_t*>(memory + k_panel_scratch_bytes(weights.tiles));
  *consumed = decode_any<Scalar>(weights, false, tiles, memory);
  PredecodedTiles predecoded(tiles);
  if (*consumed >= 0) multiply_groups(product, predecoded, scales);
  return true;
}

TILEPRESS_KERNEL(linear_f32_bf16_any_groups);

}  // namespace
}  // namespace tilepress
