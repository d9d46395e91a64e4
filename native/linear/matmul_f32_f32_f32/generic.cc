// Compiled for: portable neon_dotprod avx2 avx512
#include "linear/f32_rows.h"

namespace tilepress {
namespace {

// Both blocks, or the one that there is.
void matmul_f32_f32_f32(const F32Product& product) {
  if (kBlocksTogether == 2 && product.weights[1]) return multiply_batch<kBlocksTogether>(product);
  for (int block = 0; block < 2 && product.weights[block]; ++block) {
    multiply_batch<1>({{product.weights[block]}, product.inputs, product.x, {product.out[block]}});
  }
}

TILEPRESS_KERNEL(matmul_f32_f32_f32);

}  // namespace
}  // namespace tilepress
