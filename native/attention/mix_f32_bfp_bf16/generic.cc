// Compiled for: emulator amx
#include "matrix_unit/prompt.h"

namespace tilepress {
namespace {

void mix_f32_bfp_bf16(const KvPromptMix& all, uint8_t* scratch) {
  mix_prompt<PromptUnit, PromptRows, PromptSums>(all, scratch);
}

TILEPRESS_KERNEL(mix_f32_bfp_bf16);

}  // namespace
}  // namespace tilepress
