#include "kernels/unpack/scalar.h"

namespace tilepress {

void portable::unpack_block(const BlockShape& shape, const uint8_t* packed, const uint8_t* mask, void* codes,
                            uint8_t* keep, uint8_t* scratch) {
  unpack_block_with<Scalar>(shape, packed, mask, codes, keep, scratch);
}

}  // namespace tilepress
