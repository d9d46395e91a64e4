// Compiled for: portable neon_dotprod avx2 avx512 avx512_vbmi2
#include "linear/f32_lookups.h"

namespace tilepress {
namespace {

int64_t decode_f32_any(const KPanel& k_panel, float* weights, uint8_t* scratch) {
  return decode_any<Lookups>(k_panel, weights, scratch);
}

TILEPRESS_KERNEL(decode_f32_any);

}  // namespace
}  // namespace tilepress
