// Compiled for: emulator amx
#include "linear/tile_products.h"
#include "matrix_unit/bf16.h"

namespace tilepress {
namespace {

void matmul_f32_bf16_bf16(const TileProduct& product) { TileMultiplier<Bf16Unit>(product).run(); }

TILEPRESS_KERNEL(matmul_f32_bf16_bf16);

}  // namespace
}  // namespace tilepress
