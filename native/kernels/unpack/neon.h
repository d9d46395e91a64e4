#pragma once

#include <arm_neon.h>

#include "kernels/mask_shuffles.h"
#include "kernels/unpack/unpack_block.h"

namespace tilepress {
namespace {

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
    for (int i = 0; i < count; i += 16, mask += 2) {
      const uint8x16_t first = vld1q_u8(kWideShuffles.first[mask[0]]), second = vld1q_u8(kWideShuffles.second[mask[1]]);
      vst1q_u8(codes + i, vqtbl1q_u8(vld1q_u8(kept + taken), vaddq_u8(first, second)));
      if (keep) store_keep(mask, keep + i);
      taken += kShuffles.count[mask[0]] + kShuffles.count[mask[1]];
    }
    return taken;
  }

  static int64_t expand(const uint16_t* kept, const uint8_t* mask, int count, uint16_t* codes, uint8_t* keep) {
    int64_t taken = 0;
    for (int i = 0; i < count; i += 16, mask += 2) {
      for (int half = 0; half < 2; ++half) {
        const uint8x16_t eight = vreinterpretq_u8_u16(vld1q_u16(kept + taken));
        const uint8x16_t placed = vqtbl1q_u8(eight, vld1q_u8(kWordShuffles.expand[mask[half]]));
        vst1q_u16(codes + i + 8 * half, vreinterpretq_u16_u8(placed));
        taken += kShuffles.count[mask[half]];
      }
      if (keep) store_keep(mask, keep + i);
    }
    return taken;
  }

 private:
  // Two bytes of a mask to sixteen of 0 and 1.
  static void store_keep(const uint8_t* mask, uint8_t* keep) {
    constexpr uint8_t kPlaces[16] = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
    const uint8x16_t bits = vcombine_u8(vdup_n_u8(mask[0]), vdup_n_u8(mask[1]));
    vst1q_u8(keep, vandq_u8(vtstq_u8(bits, vld1q_u8(kPlaces)), vdupq_n_u8(1)));
  }
};

}  // namespace
}  // namespace tilepress
