#include <arm_neon.h>

#include <cstring>

#include "attention/expand_bfp_sparse/expand_units.h"
#include "simd/mask_shuffles.h"

namespace tilepress {
namespace {

// Indices of the two bytes that hold each of eight fields, and the shift that extracts it.
template <int bits>
struct Fields {
  constexpr Fields() : bytes(), shifts() {
    for (int i = 0; i < 8; ++i) {
      bytes[2 * i] = static_cast<uint8_t>(i * bits / 8);
      bytes[2 * i + 1] = static_cast<uint8_t>(i * bits / 8 + 1);
      shifts[i] = static_cast<int16_t>(-(i * bits % 8));
    }
  }

  uint8_t bytes[16];
  int16_t shifts[8];
};

// Eight values at a time, by table look-ups.
struct Neon {
  template <int bits>
  static void expand(uint64_t mask, const uint8_t* stream, int64_t at, uint8_t* to) {
    static constexpr Fields<bits> kFields;
    const uint8x16_t bytes = vld1q_u8(kFields.bytes);
    const int16x8_t shifts = vld1q_s16(kFields.shifts);
    for (int i = 0; i < kRowBytes; i += 8, mask >>= 8) {
      const int64_t bit = at * bits;
      uint64_t word;
      std::memcpy(&word, stream + bit / 8, 8);
      const uint8x16_t source = vcombine_u8(vcreate_u8(word >> (bit % 8)), vdup_n_u8(0));
      const uint16x8_t pairs = vreinterpretq_u16_u8(vqtbl1q_u8(source, bytes));
      const uint16x8_t fields = vandq_u16(vshlq_u16(pairs, shifts), vdupq_n_u16((1 << bits) - 1));
      vst1_u8(to + i, vtbl1_u8(vmovn_u16(fields), vld1_u8(kShuffles.expand[mask & 255])));
      at += kShuffles.count[mask & 255];
    }
  }
};

void expand_bfp_sparse(const SparseBfpUnits& units, uint8_t* codes, uint8_t* lows) {
  expand_units<Neon>(units, codes, lows);
}

TILEPRESS_KERNEL(expand_bfp_sparse);

}  // namespace
}  // namespace tilepress
