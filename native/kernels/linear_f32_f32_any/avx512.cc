#include "kernels/linear_f32_f32_any/lookups_avx512.h"
#include "kernels/unpack/avx2.h"

namespace tilepress {

int64_t avx512::linear_f32_span(const SpanWeights& span, const FloatActivations<float>& x, float* out,
                                uint8_t* scratch) {
  return LinearSpan<Avx512Lookups<Avx2>>{span, x, out, scratch}();
}

}  // namespace tilepress
