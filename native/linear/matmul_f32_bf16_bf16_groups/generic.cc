// Compiled for: emulator amx
#include "matrix_unit/groups.h"

namespace tilepress {
namespace {

void matmul_f32_bf16_bf16_groups(const GroupProduct& product, uint8_t* scratch) {
  PredecodedTiles tiles(product.tiles);
  PreloadedScales scales(group_scales(*product.weights, scratch));
  multiply_groups(product, tiles, scales);
}

TILEPRESS_KERNEL(matmul_f32_bf16_bf16_groups);

}  // namespace
}  // namespace tilepress
