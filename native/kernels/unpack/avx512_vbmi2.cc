#include "kernels/unpack/avx512_vbmi2.h"

namespace tilepress {

void avx512_vbmi2::unpack_block(const BlockShape& shape, const uint8_t* packed, const uint8_t* mask, void* codes,
                                uint8_t* keep, uint8_t* scratch) {
  unpack_block_with<Vbmi2>(shape, packed, mask, codes, keep, scratch);
}

}  // namespace tilepress
