#include "kernels/multiply_f32_bf16_bf16/multiply_lots.h"
#include "kernels/multiply_f32_bf16_bf16/plain_bf16_unit.h"

namespace tilepress {

void portable::multiply_bf16_tiles(const Bf16Product& product) { Bf16Multiplier<Bf16Unit>(product).run(); }

}  // namespace tilepress
