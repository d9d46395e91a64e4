#include "linear/int8_k_panel.h"
#include "pack/unpack_scalar.h"

namespace tilepress {
namespace {

int64_t decode_i8_int(const KPanel& weights, int8_t* tiles, uint8_t* scratch) {
  return decode_operands<Scalar>(weights, reinterpret_cast<uint8_t*>(tiles), scratch);
}

TILEPRESS_KERNEL(decode_i8_int);

}  // namespace
}  // namespace tilepress
