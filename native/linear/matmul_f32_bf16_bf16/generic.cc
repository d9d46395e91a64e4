// Compiled for: emulator amx
#include "linear/bf16_row_panels.h"
#include "matrix_unit/bf16.h"

namespace tilepress {
namespace {

void matmul_f32_bf16_bf16(const Bf16Product& product) { Bf16Multiplier<Bf16Unit>(product).run(); }

TILEPRESS_KERNEL(matmul_f32_bf16_bf16);

}  // namespace
}  // namespace tilepress
