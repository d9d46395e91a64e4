#include "kernels/decode_bf16_any/decode_span.h"
#include "kernels/unpack/scalar.h"

namespace tilepress {

int64_t portable::decode_bf16_span(const SpanWeights& weights, bool scaled, uint16_t* tiles, uint8_t* scratch) {
  return decode_any<Scalar>(weights, scaled, tiles, scratch);
}

}  // namespace tilepress
