// Compiled for: emulator amx
#include "matrix_unit/attention.h"

namespace tilepress {
namespace {

void mix_f32_bf16_bfp(const ConstKvUnits* values, int64_t count, int64_t channels, const KvWeights& weights, float* out,
                      uint8_t* scratch) {
  TileAttention(channels, scratch).mix(values, count, weights, out);
}

TILEPRESS_KERNEL(mix_f32_bf16_bfp);

}  // namespace
}  // namespace tilepress
