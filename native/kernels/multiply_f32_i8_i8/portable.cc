#include "kernels/multiply_f32_i8_i8/multiply_lots.h"
#include "kernels/multiply_f32_i8_i8/plain_int8_unit.h"

namespace tilepress {

void portable::multiply_int8_tiles(const IntegerProduct& product) { multiply_ready_tiles<Int8Unit>(product); }

}  // namespace tilepress
