#include "kernels/multiply_f32_i8_i8/amx_int8_unit.h"
#include "kernels/multiply_f32_i8_i8/multiply_lots.h"

namespace tilepress {

void amx::multiply_int8_tiles(const IntegerProduct& product) { multiply_ready_tiles<Int8Unit>(product); }

}  // namespace tilepress
