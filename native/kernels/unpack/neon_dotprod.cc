#include "kernels/unpack/neon.h"

namespace tilepress {

void neon_dotprod::unpack_block(const BlockShape& shape, const uint8_t* packed, const uint8_t* mask, void* codes,
                                uint8_t* keep, uint8_t* scratch) {
  unpack_block_with<Neon>(shape, packed, mask, codes, keep, scratch);
}

}  // namespace tilepress
