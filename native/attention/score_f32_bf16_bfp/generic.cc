// Compiled for: emulator amx
#include "matrix_unit/attention.h"

namespace tilepress {
namespace {

void score_f32_bf16_bfp(const ConstKvUnits* keys, int64_t count, int64_t channels, const KvQueryTiles& queries,
                        float scaling, float* scores, uint8_t* scratch) {
  TileAttention attention(channels, scratch);
  for (int64_t i = 0; i < count; ++i) attention.score(keys[i], queries, scaling, scores + i * kKvPageTokens);
}

TILEPRESS_KERNEL(score_f32_bf16_bfp);

}  // namespace
}  // namespace tilepress
