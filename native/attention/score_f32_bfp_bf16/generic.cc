// Compiled for: emulator amx
#include "matrix_unit/prompt.h"

namespace tilepress {
namespace {

void score_f32_bfp_bf16(const KvPromptScores& all, uint8_t* scratch) {
  score_prompt<PromptUnit, PromptRows, PromptSums>(all, scratch);
}

TILEPRESS_KERNEL(score_f32_bfp_bf16);

}  // namespace
}  // namespace tilepress
