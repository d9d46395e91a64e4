// Compiled for: emulator amx
#include "linear/tile_products.h"
#include "matrix_unit/int8.h"

namespace tilepress {
namespace {

void matmul_i32_i8_i8(const TileProduct& product) { TileMultiplier<Int8Unit>(product).run(); }

TILEPRESS_KERNEL(matmul_i32_i8_i8);

}  // namespace
}  // namespace tilepress
