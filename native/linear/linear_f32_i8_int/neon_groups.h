// int4:g32 with bf16 scales, the most common format of decoding, for one row: everything is known at compile time. Sums
// are anchored (neon_lines.h) at a float whose last place is 1/16 of the group's unit: one subtraction gives the sum as
// a float in its unit.
#pragma once

#include "linear/linear_f32_i8_int/neon_rows.h"

namespace tilepress {
namespace {

constexpr int kGroupInputs = 32;
constexpr int kL1Ahead = 1024, kL2Ahead = 8192;  // bytes to prefetch ahead

inline bool is_int4_g32(const KPanel& weights, const IntegerActivations& x) {
  const Format& format = *weights.format;
  return !weights.mask && !weights.zeros && format.bits == 4 && format.scale == ScaleType::bf16 &&
         format.group == kGroupInputs && x.segment == kGroupInputs && weights.inputs % kGroupInputs == 0 &&
         (x.limb_count == 1 || (x.limb_count == 2 && x.limb_bits == 0));
}

template <int addends>
[[gnu::always_inline]] inline void multiply_groups(const KPanel& weights, const IntegerActivations& x, int64_t row,
                                                   float* out) {
  const auto* halves = static_cast<const uint16_t*>(weights.scales) + weights.first / kGroupInputs * kBlockNeurons;
  const uint8_t* packed = weights.packed;
  const uint16x8_t zero = vdupq_n_u16(0);
  Totals<1> accumulators;
  for (int64_t group = 0; group < weights.inputs / kGroupInputs; ++group, halves += kBlockNeurons) {
    const float* start = x.starts + 4 * (row * x.segment_stride + group);
    int32x4_t sums[kQuarters] = {load_start<0>(start, group), load_start<1>(start, group), load_start<2>(start, group),
                                 load_start<3>(start, group)};
    __builtin_prefetch(halves + kL1Ahead / 2);
    for (int line = 0; line < 4; ++line) {
      __builtin_prefetch(packed + kL1Ahead + line * kVectorBytes);
      __builtin_prefetch(packed + kL2Ahead + line * kVectorBytes, 0, 2);
    }
    const auto four_inputs = [&]<int lane>(const int8x16_t(&operands)[kQuarters], const int8x16_t(&lanes)[addends]) {
      for (const int8x16_t& each : lanes) {
        for (int i = 0; i < kQuarters; ++i) sums[i] = vdotq_laneq_s32(sums[i], operands[i], each, lane);
      }
    };
    const auto eight_inputs = [&]<int lane>(const int8x16_t(&lanes)[addends]) {
      int8x16_t low[kQuarters], high[kQuarters];
      for (int i = 0; i < kQuarters; ++i, packed += 16) {
        const uint8x16_t pairs = vld1q_u8(packed);
        low[i] = Dense4<true>::low(pairs);
        high[i] = Dense4<true>::high(pairs);
      }
      four_inputs.template operator()<lane>(low, lanes);
      four_inputs.template operator()<lane + 1>(high, lanes);
    };
    const auto sixteen_inputs = [&](int64_t input) {
      int8x16_t lanes[addends];
      for (int i = 0; i < addends; ++i) lanes[i] = vld1q_s8(x.limbs[i] + row * x.stride + input);
      eight_inputs.template operator()<0>(lanes);
      eight_inputs.template operator()<2>(lanes);
    };
    sixteen_inputs(kGroupInputs * group);
    sixteen_inputs(kGroupInputs * group + 16);
    const uint16x8_t first = vld1q_u16(halves), second = vld1q_u16(halves + 8);
    const uint16x8_t scales[kQuarters] = {vzip1q_u16(zero, first), vzip2q_u16(zero, first), vzip1q_u16(zero, second),
                                          vzip2q_u16(zero, second)};
    for (int i = 0; i < kQuarters; ++i) {
      const float32x4_t value = vsubq_f32(vreinterpretq_f32_s32(sums[i]), vld1q_f32(start));
      accumulators.totals[i] = vfmaq_f32(accumulators.totals[i], value, vreinterpretq_f32_u16(scales[i]));
    }
  }
  accumulators.add_to(out);
}

// With one addend there are registers to spare, so that scheduling before register allocation pays.
[[gnu::optimize("schedule-insns")]] void multiply_one_addend(const KPanel& weights, const IntegerActivations& x,
                                                             int64_t row, float* out) {
  multiply_groups<1>(weights, x, row, out);
}
void multiply_two_addends(const KPanel& weights, const IntegerActivations& x, int64_t row, float* out) {
  multiply_groups<2>(weights, x, row, out);
}

inline void multiply_int4_g32(const KPanel& weights, const IntegerActivations& x, int64_t row, float* out) {
  x.limb_count == 2 ? multiply_two_addends(weights, x, row, out) : multiply_one_addend(weights, x, row, out);
}

}  // namespace
}  // namespace tilepress
