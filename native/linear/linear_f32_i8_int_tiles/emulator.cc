#include "linear/int8_row_panels.h"
#include "matrix_unit/emulator/int8.h"
#include "pack/unpack_scalar.h"

namespace tilepress {
namespace {

// Decodes whole K-panels. `scratch`: non-zeros, then the tiles of each block.
void linear_f32_i8_int_tiles(const IntegerBlocks& all, int64_t* consumed, uint8_t* scratch) {
  for_products(all, [&](const IntegerProduct& product, int64_t index) {
    IntegerProduct predecoded = product;
    for (int block = 0; block < 2 && product.weights[block]; ++block) {
      const KPanel& k_panel = *product.weights[block];
      uint8_t* tiles = scratch + (1 + block) * k_panel_scratch_bytes(k_panel.tiles);
      consumed[index + block] = decode_operands<Scalar>(k_panel, tiles, scratch);
      if (consumed[index + block] < 0) return;
      predecoded.tiles[block] = reinterpret_cast<int8_t*>(tiles);
    }
    multiply_predecoded<Int8Unit, HasZeroPoints::sometimes>(predecoded);
  });
}

TILEPRESS_KERNEL(linear_f32_i8_int_tiles);

}  // namespace
}  // namespace tilepress
