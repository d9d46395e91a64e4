#include "pack/planes_neon.h"

namespace tilepress {
namespace {

// Magnitudes to fp16. Behind the exponent of 2^23 an integer is a float already, and 2^23 units too large.
[[gnu::always_inline]] inline uint16x8_t to_fp16(uint16x8_t magnitudes, float unit) {
  const uint16x8_t top = vdupq_n_u16(0x4b00);
  const float32x4_t less = vdupq_n_f32(-0x1p23f * unit), units = vdupq_n_f32(unit);
  const float32x4_t low = vreinterpretq_f32_u16(vzip1q_u16(magnitudes, top));
  const float32x4_t high = vreinterpretq_f32_u16(vzip2q_u16(magnitudes, top));
  const float16x4_t first = vcvt_f16_f32(vfmaq_f32(less, low, units));
  return vreinterpretq_u16_f16(vcvt_high_f16_f32(first, vfmaq_f32(less, high, units)));
}

struct NeonUnpack {
  template <int mantissa>
  static uint8x16_t two_planes(const uint8_t* planes, int plane) {
    const uint8_t* from = planes + (1 + plane) * kPlaneBytes;
    if (plane + 1 < mantissa) return vld1q_u8(from);
    return plane < mantissa ? vcombine_u8(vld1_u8(from), vdup_n_u8(0)) : vdupq_n_u8(0);
  }

  template <int mantissa>
  static void unpack(const uint8_t* planes, float unit, uint16_t* halves) {
    Vectors vectors;
    for (int plane = 0; plane < 8; plane += 2) {
      const uint8x16_t high = two_planes<mantissa>(planes, plane), low = two_planes<mantissa>(planes, plane + 8);
      vectors.of[7 - plane] = words(vzip1q_u8(low, high));
      vectors.of[6 - plane] = words(vzip2q_u8(low, high));
    }
    transpose(vectors);
    uint16x8_t signs = vmovl_u8(vld1_u8(planes));
    for (int k = 7; k >= 0; --k) {
      const uint16x8_t sign = vshlq_u16(signs, vdupq_n_s16(static_cast<int16_t>(15 - k)));
      vectors.of[k] = vbslq_u16(vdupq_n_u16(0x8000), sign, to_fp16(vectors.of[k], unit));
    }
    exchange_lanes(vectors);
    for (int k = 0; k < 8; ++k) vst1q_u16(halves + 8 * k, vectors.of[k]);
  }
};

void unpack_f16_planes(const uint8_t* planes, const uint8_t* fields, int64_t groups, int mantissa, uint16_t* halves) {
  unpack_planes_with<NeonUnpack>(planes, fields, groups, mantissa, halves);
}

TILEPRESS_KERNEL(unpack_f16_planes);

}  // namespace
}  // namespace tilepress
