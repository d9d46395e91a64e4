#include "linear/decode_bf16.h"
#include "pack/unpack_scalar.h"

namespace tilepress {
namespace {

int64_t decode_bf16_any(const KPanel& weights, bool scaled, uint16_t* tiles, uint8_t* scratch) {
  return decode_any<Scalar>(weights, scaled, tiles, scratch);
}

TILEPRESS_KERNEL(decode_bf16_any);

}  // namespace
}  // namespace tilepress
