#include "linear/linear_f32_i8_int/neon_dots.h"

namespace tilepress {
namespace {

int64_t linear_f32_i8_int(const KPanel& weights, const IntegerActivations& x, float* out, uint8_t* scratch) {
  return linear_by_dots(weights, x, out, scratch);
}

TILEPRESS_KERNEL(linear_f32_i8_int);

}  // namespace
}  // namespace tilepress
