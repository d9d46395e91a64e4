#include <arm_neon.h>

#include "pack/pack_block.h"
#include "simd/mask_shuffles.h"

namespace tilepress {
namespace {

// Eight 0/1 bytes to eight bits.
inline uint8_t mask_byte(uint8x8_t keep) {
  constexpr int8_t kPlaces[8] = {0, 1, 2, 3, 4, 5, 6, 7};
  return vaddv_u8(vshl_u8(keep, vld1_s8(kPlaces)));
}

struct Neon {
  static int64_t compact(const uint8_t* codes, const uint8_t* keep, int count, uint8_t* nonzeros, uint8_t* mask) {
    int64_t consumed = 0;
    for (int i = 0; i < count; i += 8) {
      const uint8_t bits = mask_byte(vld1_u8(keep + i));
      vst1_u8(nonzeros + consumed, vtbl1_u8(vld1_u8(codes + i), vld1_u8(kShuffles.compact[bits])));
      mask[i / 8] = bits;
      consumed += kShuffles.count[bits];
    }
    return consumed;
  }

  static int64_t compact(const uint16_t* codes, const uint8_t* keep, int count, uint16_t* nonzeros, uint8_t* mask) {
    int64_t consumed = 0;
    for (int i = 0; i < count; i += 8) {
      const uint8_t bits = mask_byte(vld1_u8(keep + i));
      const uint8x16_t eight = vreinterpretq_u8_u16(vld1q_u16(codes + i));
      const uint8x16_t shuffle = vld1q_u8(kWordShuffles.compact[bits]);
      vst1q_u16(nonzeros + consumed, vreinterpretq_u16_u8(vqtbl1q_u8(eight, shuffle)));
      mask[i / 8] = bits;
      consumed += kShuffles.count[bits];
    }
    return consumed;
  }
};

void pack_tiles_codes(const BlockShape& shape, const void* codes, const uint8_t* keep, uint8_t* packed, uint8_t* mask) {
  pack_block_with<Neon>(shape, codes, keep, packed, mask);
}

TILEPRESS_KERNEL(pack_tiles_codes);

}  // namespace
}  // namespace tilepress
