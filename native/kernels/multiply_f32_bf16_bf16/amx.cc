#include "kernels/multiply_f32_bf16_bf16/amx_bf16_unit.h"
#include "kernels/multiply_f32_bf16_bf16/multiply_lots.h"

namespace tilepress {

void amx::multiply_bf16_tiles(const Bf16Product& product) { Bf16Multiplier<Bf16Unit>(product).run(); }

}  // namespace tilepress
