// A group is eight vectors, of which vector k holds values k, 8 + k, 16 + k …. Eight bits of eight values, one in each
// vector, then change places without leaving their lanes: byte i of a plane comes out in lane i.
#include <arm_neon.h>

#include "kernels/planes/groups.h"

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

// Magnitudes to fp16. Behind the exponent of 2^23 an integer is a float already, and 2^23 units too large.
[[gnu::always_inline]] inline uint16x8_t to_fp16(uint16x8_t magnitudes, float unit) {
  const uint16x8_t top = vdupq_n_u16(0x4b00);
  const float32x4_t less = vdupq_n_f32(-0x1p23f * unit), units = vdupq_n_f32(unit);
  const float32x4_t low = vreinterpretq_f32_u16(vzip1q_u16(magnitudes, top));
  const float32x4_t high = vreinterpretq_f32_u16(vzip2q_u16(magnitudes, top));
  const float16x4_t first = vcvt_f16_f32(vfmaq_f32(less, low, units));
  return vreinterpretq_u16_f16(vcvt_high_f16_f32(first, vfmaq_f32(less, high, units)));
}

struct Neon {
  static void to_halves(const float* floats, uint16_t* halves) {
    for (int i = 0; i < kPlaneValues; i += 8) {
      const float16x4_t first = vcvt_f16_f32(vld1q_f32(floats + i));
      vst1q_u16(halves + i, vreinterpretq_u16_f16(vcvt_high_f16_f32(first, vld1q_f32(floats + i + 4))));
    }
  }

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

}  // namespace

void neon_dotprod::pack_planes(Real type, const void* values, int64_t groups, int mantissa, uint8_t* planes,
                               uint8_t* fields) {
  pack_planes_with<Neon>(type, values, groups, mantissa, planes, fields);
}

void neon_dotprod::unpack_planes(const uint8_t* planes, const uint8_t* fields, int64_t groups, int mantissa,
                                 uint16_t* halves) {
  unpack_planes_with<Neon>(planes, fields, groups, mantissa, halves);
}

}  // namespace tilepress
