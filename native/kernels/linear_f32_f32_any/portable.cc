#include "kernels/linear_f32_f32_any/linear_span.h"
#include "kernels/unpack/scalar.h"

namespace tilepress {
namespace {

struct ScalarLookups : Scalar {
  using SmallTable = Table;

  [[gnu::always_inline]] static Floats to_floats(Halves halves) { return fp16_lanes_to_floats(halves); }
};

}  // namespace

int64_t portable::linear_f32_span(const SpanWeights& span, const FloatActivations<float>& x, float* out,
                                  uint8_t* scratch) {
  return linear_span<ScalarLookups>(span, x, out, scratch);
}

int64_t portable::decode_f32_span(const SpanWeights& span, float* weights, uint8_t* scratch) {
  return decode_any<ScalarLookups>(span, weights, scratch);
}

}  // namespace tilepress
