// Shared by score_f32_bfp_bfp and mix_f32_u8_bfp on NEON.
#pragma once

#include <arm_neon.h>

#include "attention/bfp_page.h"

namespace tilepress {
namespace {

// An integer up to 2^22 added to the bits of this float is added to its value: one subtraction then converts a sum to
// float. The conversion instruction has a quarter of the throughput.
constexpr float kAnchor = 0x1.8p23f;
constexpr float32x4_t kAnchors = {kAnchor, kAnchor, kAnchor, kAnchor};

// A load in place of a register copy: the two vector pipes are the bottleneck.
template <class Vector>
inline Vector fresh(const Vector& from) {
  Vector vector;
  asm volatile("ldr %q0, %1" : "=w"(vector) : "m"(from));
  return vector;
}

inline float32x4_t as_floats(int32x4_t sums) { return vsubq_f32(vreinterpretq_f32_s32(sums), vdupq_n_f32(kAnchor)); }
inline float32x4_t as_floats(uint32x4_t sums) { return as_floats(vreinterpretq_s32_u32(sums)); }

// What 1 stands for in each lane.
inline void lane_units_of(const ConstKvUnits& unit, float* units) {
  const uint8x16_t nibbles = vcombine_u8(vld1_u8(unit.exponents), vld1_u8(unit.exponents));
  const int8x16_t shifts = vcombine_s8(vdup_n_s8(0), vdup_n_s8(-4));
  const uint8x16_t low = vandq_u8(vshlq_u8(nibbles, shifts), vdupq_n_u8(15));
  const uint8x16_t bits = vreinterpretq_u8_u64(vdupq_n_u64(0x8040201008040201));
  const uint8x16_t high = vcombine_u8(vdup_n_u8(unit.exponents[8]), vdup_n_u8(unit.exponents[9]));
  const uint8x16_t field = vbslq_u8(vdupq_n_u8(16), vtstq_u8(high, bits), low);
  const uint8x16_t bias = vdupq_n_u8(unit.lows ? 127 - 22 : 127 - 18);
  const uint8x16_t biased = vaddq_u8(vmaxq_u8(field, vdupq_n_u8(1)), bias);
  const uint16x8_t first = vshll_n_u8(vget_low_u8(biased), 7), second = vshll_high_n_u8(biased, 7),
                   zero = vdupq_n_u16(0);
  vst1q_u16(reinterpret_cast<uint16_t*>(units), vzip1q_u16(zero, first));
  vst1q_u16(reinterpret_cast<uint16_t*>(units + 4), vzip2q_u16(zero, first));
  vst1q_u16(reinterpret_cast<uint16_t*>(units + 8), vzip1q_u16(zero, second));
  vst1q_u16(reinterpret_cast<uint16_t*>(units + 12), vzip2q_u16(zero, second));
}

template <int count, int four>
inline void dot(int8x16_t codes, const int8x16_t* x, int32x4_t* sums) {
  for (int i = 0; i < count; ++i) sums[i] = vdotq_laneq_s32(sums[i], codes, x[i], four);
}
template <int count, int four>
inline void dot(uint8x16_t codes, const uint8x16_t* x, uint32x4_t* sums) {
  for (int i = 0; i < count; ++i) sums[i] = vdotq_laneq_u32(sums[i], codes, x[i], four);
}

template <class Work>
inline void four_times(const Work& work) {
  work.template operator()<0>();
  work.template operator()<1>();
  work.template operator()<2>();
  work.template operator()<3>();
}

constexpr int kPieces = 4;  // per unit, four lanes each

template <int count, class Bytes, class Sums>
inline void add_lows(const uint8_t* from, const Bytes* x, const Bytes* y, Sums* sums) {
  four_times([&]<int i>() {
    const uint8x16_t nibbles = vld1q_u8(from + 64 * i);
    dot<count, i>(std::bit_cast<Bytes>(vandq_u8(nibbles, vdupq_n_u8(15))), x, sums);
    dot<count, i>(std::bit_cast<Bytes>(vshrq_n_u8(nibbles, 4)), y, sums);
  });
}

// accumulators += terms * the unit of each row
template <int rows>
inline void add_rows(const float32x4_t* terms, float32x4_t units, float32x4_t* accumulators) {
  four_times([&]<int row>() {
    if constexpr (row < rows) accumulators[row] = vfmaq_laneq_f32(accumulators[row], terms[row], units, row);
  });
}

}  // namespace
}  // namespace tilepress
