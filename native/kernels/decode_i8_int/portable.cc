#include "kernels/linear_f32_i8_int/linear_span.h"
#include "kernels/unpack/scalar.h"

namespace tilepress {

int64_t portable::decode_int8_span(const SpanWeights& weights, int8_t* tiles, uint8_t* scratch) {
  return decode_operands<Scalar>(weights, reinterpret_cast<uint8_t*>(tiles), scratch);
}

}  // namespace tilepress
