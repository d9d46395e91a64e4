#include "pack/pack_block.h"

namespace tilepress {
namespace {

// Eight 0/1 bytes to eight bits: the product puts byte i at bit 56 + i and nothing carries.
inline uint8_t mask_byte(const uint8_t* keep) {
  uint64_t bytes;
  std::memcpy(&bytes, keep, 8);
  return static_cast<uint8_t>(bytes * 0x0102040810204080u >> 56);
}

struct Scalar {
  template <class Code>
  static int64_t compact(const Code* codes, const uint8_t* keep, int count, Code* nonzeros, uint8_t* mask) {
    for (int i = 0; i < count / 8; ++i) mask[i] = mask_byte(keep + 8 * i);
    int64_t consumed = 0;
    for (int i = 0; i < count; ++i) {
      nonzeros[consumed] = codes[i];
      consumed += keep[i];
    }
    return consumed;
  }
};

void pack_tiles_codes(const BlockShape& shape, const void* codes, const uint8_t* keep, uint8_t* packed, uint8_t* mask) {
  pack_block_with<Scalar>(shape, codes, keep, packed, mask);
}

TILEPRESS_KERNEL(pack_tiles_codes);

}  // namespace
}  // namespace tilepress
