// Compiled for: portable neon_dotprod avx2
#include "linear/f32_lookups.h"

namespace tilepress {
namespace {

int64_t linear_f32_f32_any(const KPanel& k_panel, const FloatActivations<float>& x, float* out, uint8_t* scratch) {
  return linear_k_panel<Lookups>(k_panel, x, out, scratch);
}

TILEPRESS_KERNEL(linear_f32_f32_any);

}  // namespace
}  // namespace tilepress
