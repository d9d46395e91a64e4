// Compiled for: emulator amx
#include "linear/int8_row_panels.h"
#include "matrix_unit/int8.h"

namespace tilepress {
namespace {

void matmul_f32_i8_i8(const IntegerProduct& product) {
  SteppedCodes::accepts(*product.weights[0], product.x)
      ? multiply_predecoded<SteppedCodes, HasZeroPoints::always>(product)
      : multiply_predecoded<Int8Unit, HasZeroPoints::sometimes>(product);
}

TILEPRESS_KERNEL(matmul_f32_i8_i8);

}  // namespace
}  // namespace tilepress
