#include "linear/int8_row_panels.h"
#include "matrix_unit/emulator/int8.h"
#include "pack/unpack_scalar.h"

namespace tilepress {
namespace {

// Decoded all at once here; `scratch` has room for the kept codes and the tiles of both blocks.
void linear_f32_i8_int_tiles(const IntegerBlocks& all, int64_t* taken, uint8_t* scratch) {
  for_products(all, [&](const IntegerProduct& product, int64_t index) {
    IntegerProduct ready = product;
    for (int block = 0; block < 2 && product.weights[block]; ++block) {
      const SpanWeights& span = *product.weights[block];
      uint8_t* tiles = scratch + (1 + block) * span_scratch_bytes(span.tiles);
      taken[index + block] = decode_operands<Scalar>(span, tiles, scratch);
      if (taken[index + block] < 0) return;
      ready.tiles[block] = reinterpret_cast<int8_t*>(tiles);
    }
    multiply_ready_tiles<Int8Unit>(ready);
  });
}

TILEPRESS_KERNEL(linear_f32_i8_int_tiles);

}  // namespace
}  // namespace tilepress
