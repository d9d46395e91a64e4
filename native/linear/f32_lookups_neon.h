// What f32_k_panel.h asks for beside unpacking.
#pragma once

#include "linear/f32_k_panel.h"
#include "pack/unpack_neon.h"

namespace tilepress {
namespace {

// Sixteen floats as four tables of their bytes. Bytes looked up for all codes of the lanes are brought together by
// interleaving, which the compiler does once for the codes of a lane.
struct NeonTable : AnyTable {
  explicit NeonTable(const Format& format) : AnyTable(format) {
    alignas(64) uint8_t bytes[64] = {};
    std::memcpy(bytes, format.values, sizeof(float) << format.bits);
    planes = vld4q_u8(bytes);
  }

  [[gnu::always_inline]] Floats operator()(Uint32s lanes, int at) const {
    const auto codes = std::bit_cast<uint8x16_t>(lanes);
    const uint16x8_t low = pairs(planes.val[0], planes.val[1], codes, at & 8);
    const uint16x8_t high = pairs(planes.val[2], planes.val[3], codes, at & 8);
    return std::bit_cast<Floats>(at & 16 ? vtrn2q_u16(low, high) : vtrn1q_u16(low, high));
  }

  [[gnu::always_inline]] Floats operator()(Uint16s lanes, int at) const {
    const auto codes = vcombine_u8(std::bit_cast<uint8x8_t>(lanes), vdup_n_u8(0));
    const uint16x8_t low = pairs(planes.val[0], planes.val[1], codes, at);
    const uint16x8_t high = pairs(planes.val[2], planes.val[3], codes, at);
    return std::bit_cast<Floats>(vzip1q_u16(low, high));
  }

  // Two neighbouring bytes of the values of every other code, the odd ones or the even.
  [[gnu::always_inline]] static uint16x8_t pairs(uint8x16_t low, uint8x16_t high, uint8x16_t codes, int odd) {
    const uint8x16_t lows = vqtbl1q_u8(low, codes), highs = vqtbl1q_u8(high, codes);
    return vreinterpretq_u16_u8(odd ? vtrn2q_u8(lows, highs) : vtrn1q_u8(lows, highs));
  }

  uint8x16x4_t planes;
};

struct Lookups : Neon {
  using SmallTable = NeonTable;

  [[gnu::always_inline]] static void look_up_words(const uint8_t* low, const uint8_t* high, Bytes codes,
                                                   uint16_t* values) {
    const auto indices = std::bit_cast<uint8x16_t>(codes);
    const uint8x16_t lows = vqtbl1q_u8(vld1q_u8(low), indices), highs = vqtbl1q_u8(vld1q_u8(high), indices);
    vst1q_u16(values, vreinterpretq_u16_u8(vzip1q_u8(lows, highs)));
    vst1q_u16(values + 8, vreinterpretq_u16_u8(vzip2q_u8(lows, highs)));
  }
};

}  // namespace
}  // namespace tilepress
