#include "kernels/unpack/avx512.h"

namespace tilepress {

void avx512::unpack_block(const BlockShape& shape, const uint8_t* packed, const uint8_t* mask, void* codes,
                          uint8_t* keep, uint8_t* scratch) {
  unpack_block_with<Avx512>(shape, packed, mask, codes, keep, scratch);
}

}  // namespace tilepress
