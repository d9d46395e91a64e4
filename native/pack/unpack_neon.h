#pragma once

#include <arm_neon.h>

#include "pack/unpack_block.h"
#include "simd/mask_shuffles.h"

namespace tilepress {
namespace {

// Expanding 64 codes: one multiplication counts the non-zeros before each part of them, so that look-ups need not wait
// for each other.
struct Places {
  explicit Places(const uint8_t* mask) {
    std::memcpy(&bits, mask, 8);
    const uint64_t counts = vget_lane_u64(vreinterpret_u64_u8(vcnt_u8(vcreate_u8(bits))), 0);
    const uint64_t ends = counts * 0x0101010101010101;
    starts = ends << 8;
    total = static_cast<int64_t>(ends >> 56);
  }

  // What was dropped becomes zero, or what it is in `instead`.
  int8x16_t expand(const uint8_t* nonzeros, int quarter) const {
    return vreinterpretq_s8_u8(vqtbl1q_u8(codes(nonzeros, quarter), places(quarter)));
  }
  int8x16_t expand(const uint8_t* nonzeros, int quarter, uint8x16_t instead) const {
    return vreinterpretq_s8_u8(vqtbx1q_u8(instead, codes(nonzeros, quarter), places(quarter)));
  }

  // Eight of two bytes.
  uint16x8_t expand(const uint16_t* nonzeros, int eighth) const {
    const uint8x16_t codes = vreinterpretq_u8_u16(vld1q_u16(nonzeros + (starts >> 8 * eighth & 0xff)));
    return vreinterpretq_u16_u8(vqtbl1q_u8(codes, vld1q_u8(kWordShuffles.expand[bits >> 8 * eighth & 0xff])));
  }

  uint8x16_t codes(const uint8_t* nonzeros, int quarter) const {
    return vld1q_u8(nonzeros + (starts >> 16 * quarter & 0xff));
  }
  uint8x16_t places(int quarter) const {
    const uint8x16_t first = vld1q_u8(kWideShuffles.first[bits >> 16 * quarter & 0xff]);
    const uint8x16_t second = vld1q_u8(kWideShuffles.second[bits >> (16 * quarter + 8) & 0xff]);
    return vaddq_u8(first, second);
  }

  uint64_t bits, starts;
  int64_t total;
};

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

  static int64_t expand(const uint8_t* nonzeros, const uint8_t* mask, int count, uint8_t* codes, uint8_t* keep) {
    const uint8_t* at = nonzeros;
    for (int i = 0; i < count; i += 64, mask += 8) {
      const Places places(mask);
      for (int quarter = 0; quarter < 4; ++quarter) {
        vst1q_u8(codes + i + 16 * quarter, vreinterpretq_u8_s8(places.expand(at, quarter)));
        if (keep) store_keep(mask + 2 * quarter, keep + i + 16 * quarter);
      }
      at += places.total;
    }
    return at - nonzeros;
  }

  static int64_t expand(const uint16_t* nonzeros, const uint8_t* mask, int count, uint16_t* codes, uint8_t* keep) {
    const uint16_t* at = nonzeros;
    for (int i = 0; i < count; i += 64, mask += 8) {
      const Places places(mask);
      for (int eighth = 0; eighth < 8; ++eighth) vst1q_u16(codes + i + 8 * eighth, places.expand(at, eighth));
      for (int quarter = 0; keep && quarter < 4; ++quarter) store_keep(mask + 2 * quarter, keep + i + 16 * quarter);
      at += places.total;
    }
    return at - nonzeros;
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
