// A group is eight vectors, of which vector k holds values k, 8 + k, 16 + k …. Eight bits of eight values, one in each
// vector, then change places without leaving their lanes: byte i of a plane comes out in lane i.
#pragma once

#include <arm_neon.h>

#include "pack/planes.h"

namespace tilepress {
namespace {

struct Vectors {
  uint16x8_t of[8];
};

// Lane i of vector j to lane j of vector i. Its own inverse.
[[gnu::always_inline]] inline void exchange_lanes(Vectors& vectors) {
  uint16x8_t(&v)[8] = vectors.of;
  for (int i : {0, 2, 4, 6}) {
    const uint16x8_t a = v[i], b = v[i + 1];
    v[i] = vtrn1q_u16(a, b), v[i + 1] = vtrn2q_u16(a, b);
  }
  for (int i : {0, 1, 4, 5}) {
    const uint32x4_t a = vreinterpretq_u32_u16(v[i]), b = vreinterpretq_u32_u16(v[i + 2]);
    v[i] = vreinterpretq_u16_u32(vtrn1q_u32(a, b)), v[i + 2] = vreinterpretq_u16_u32(vtrn2q_u32(a, b));
  }
  for (int i : {0, 1, 2, 3}) {
    const uint64x2_t a = vreinterpretq_u64_u16(v[i]), b = vreinterpretq_u64_u16(v[i + 4]);
    v[i] = vreinterpretq_u16_u64(vtrn1q_u64(a, b)), v[i + 4] = vreinterpretq_u16_u64(vtrn2q_u64(a, b));
  }
}

uint8x16_t bytes(uint16x8_t words) { return vreinterpretq_u8_u16(words); }
uint16x8_t words(uint8x16_t bytes) { return vreinterpretq_u16_u8(bytes); }

// Bit i of vector j to bit j of vector i, in each byte. Its own inverse.
[[gnu::always_inline]] inline void transpose(Vectors& vectors) {
  uint16x8_t(&v)[8] = vectors.of;
  for (int i = 0; i < 4; ++i) {
    const uint8x16_t a = bytes(v[i]), b = bytes(v[i + 4]);
    v[i] = words(vsliq_n_u8(a, b, 4));
    v[i + 4] = words(vsriq_n_u8(b, a, 4));
  }
  const auto swap = [&]<int by>(int i, uint16x8_t mask) {
    const uint16x8_t a = v[i], b = v[i + by];
    v[i] = vbslq_u16(mask, a, vshlq_n_u16(b, by));
    v[i + by] = vbslq_u16(mask, vshrq_n_u16(a, by), b);
  };
  for (int i : {0, 1, 4, 5}) swap.operator()<2>(i, vdupq_n_u16(0x3333));
  for (int i : {0, 2, 4, 6}) swap.operator()<1>(i, vdupq_n_u16(0x5555));
}

}  // namespace
}  // namespace tilepress
