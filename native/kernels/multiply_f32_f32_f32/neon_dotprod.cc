#include "kernels/multiply_f32_f32_f32/multiply_rows.h"

namespace tilepress {

void neon_dotprod::multiply_f32_weights(const F32Product& product) { multiply_blocks(product); }

}  // namespace tilepress
