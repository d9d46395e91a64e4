#include "pack/planes_neon.h"

namespace tilepress {
namespace {

// Eight signs, from one vector after another shifted in at the top.
[[gnu::always_inline]] inline uint8x8_t signs_of(const Vectors& vectors) {
  uint16x8_t signs = vectors.of[0];
  for (int k = 1; k < 8; ++k) signs = vsriq_n_u16(vectors.of[k], signs, 1);
  return vshrn_n_u16(signs, 8);
}

[[gnu::always_inline]] inline uint16_t largest_of(const Vectors& vectors) {
  uint16x8_t largest = vectors.of[0];
  for (int k = 1; k < 8; ++k) largest = vmaxq_u16(largest, vectors.of[k]);
  return vmaxvq_u16(largest);
}

// How far FP16 shifts the significands of a number's exponent to the left: its field less one, 0 for 0; and where the
// field lies.
[[gnu::always_inline]] inline uint16x8_t shift_field(uint16x8_t positive) {
  return vqsubq_u16(vbicq_u16(positive, vdupq_n_u16(0x3ff)), vdupq_n_u16(0x400));
}
[[gnu::always_inline]] inline int16x8_t shift_of(uint16x8_t field) {
  return vreinterpretq_s16_u16(vshrq_n_u16(field, 10));
}

// Magnitudes with 16 bits, five more than significands have, of numbers without their signs.
[[gnu::always_inline]] inline void to_magnitudes(Vectors& positive, uint16_t largest) {
  const int16x8_t shared = vsubq_s16(shift_of(shift_field(vdupq_n_u16(largest))), vdupq_n_s16(5));
  for (auto& vector : positive.of) {
    const uint16x8_t field = shift_field(vector);
    vector = vshlq_u16(vsubq_u16(vector, field), vsubq_s16(shift_of(field), shared));
  }
}

struct NeonPack {
  template <int mantissa>
  static uint8_t pack(const uint16_t* halves, uint8_t* planes) {
    Vectors vectors;
    for (int k = 0; k < 8; ++k) vectors.of[k] = vld1q_u16(halves + 8 * k);
    exchange_lanes(vectors);
    vst1_u8(planes, signs_of(vectors));
    for (auto& vector : vectors.of) vector = vbicq_u16(vector, vdupq_n_u16(0x8000));
    const uint16_t largest = largest_of(vectors);
    to_magnitudes(vectors, largest);
    transpose(vectors);
    for (int plane = 0; plane < mantissa; plane += 2) {
      const uint8x16_t one = bytes(vectors.of[7 - plane % 8]), next = bytes(vectors.of[6 - plane % 8]);
      const uint8x16_t both = plane < 8 ? vuzp2q_u8(one, next) : vuzp1q_u8(one, next);
      uint8_t* to = planes + (1 + plane) * kPlaneBytes;
      plane + 1 < mantissa ? vst1q_u8(to, both) : vst1_u8(to, vget_low_u8(both));
    }
    return static_cast<uint8_t>(largest >> 10);
  }
};

void pack_planes_fp(FloatType type, const void* values, int64_t groups, int mantissa, uint8_t* planes,
                    uint8_t* fields) {
  pack_planes_with<NeonPack>(type, values, groups, mantissa, planes, fields);
}

TILEPRESS_KERNEL(pack_planes_fp);

}  // namespace
}  // namespace tilepress
