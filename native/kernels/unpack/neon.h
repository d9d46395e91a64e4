#pragma once

#include "kernels/neon_shuffles.h"
#include "kernels/unpack/unpack_block.h"

namespace tilepress {
namespace {

inline uint8x8_t keep_bytes(uint8_t bits) {
  constexpr uint8_t kPlaces[8] = {1, 2, 4, 8, 16, 32, 64, 128};
  return vand_u8(vtst_u8(vdup_n_u8(bits), vld1_u8(kPlaces)), vdup_n_u8(1));
}

struct Neon {
  static void unpack_stream(int bits, const uint8_t* in, int64_t count, uint8_t* codes) {
    if (bits != 4) return unpack_stream_by_words(bits, in, count, codes);
    for (int64_t i = 0; i < count; i += 32, in += 16) {
      const uint8x16_t pairs = vld1q_u8(in);
      const uint8x16_t low = vandq_u8(pairs, vdupq_n_u8(15)), high = vshrq_n_u8(pairs, 4);
      vst1q_u8(codes + i, vzip1q_u8(low, high));
      vst1q_u8(codes + i + 16, vzip2q_u8(low, high));
    }
  }

  static int64_t expand(const uint8_t* kept, const uint8_t* mask, int count, uint8_t* codes, uint8_t* keep) {
    int64_t taken = 0;
    for (int i = 0; i < count; i += 8) {
      const uint8_t bits = mask[i / 8];
      vst1_u8(codes + i, vtbl1_u8(vld1_u8(kept + taken), vld1_u8(kShuffles.expand[bits])));
      vst1_u8(keep + i, keep_bytes(bits));
      taken += kShuffles.count[bits];
    }
    return taken;
  }

  static int64_t expand(const uint16_t* kept, const uint8_t* mask, int count, uint16_t* codes, uint8_t* keep) {
    int64_t taken = 0;
    for (int i = 0; i < count; i += 8) {
      const uint8_t bits = mask[i / 8];
      const uint8x16_t eight = vreinterpretq_u8_u16(vld1q_u16(kept + taken));
      const uint8x16_t shuffle = byte_pairs(vld1_u8(kShuffles.expand[bits]));
      vst1q_u16(codes + i, vreinterpretq_u16_u8(vqtbl1q_u8(eight, shuffle)));
      vst1_u8(keep + i, keep_bytes(bits));
      taken += kShuffles.count[bits];
    }
    return taken;
  }
};

}  // namespace
}  // namespace tilepress
