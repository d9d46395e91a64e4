#include "kernels/linear_f32_i8_int/dense_avx512.h"
#include "kernels/unpack/avx2.h"

namespace tilepress {

int64_t avx512_vnni::linear_integer_span(const SpanWeights& weights, const IntegerActivations& x, float* out,
                                         uint8_t* scratch) {
  return linear_any<Avx2>(weights, x, out, scratch);
}

}  // namespace tilepress
