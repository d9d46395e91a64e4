// Scales and zero points at the end of a segment, for 16 neurons at once.
#pragma once

#include "linear/int8_k_panel.h"
#include "linear/scales_avx512.h"

namespace tilepress {
namespace {

// Scales of two bytes, as most grouped formats have.
inline bool has_half_scales(const Format& format) {
  return format.scale == ScaleType::bf16 || format.scale == ScaleType::fp16;
}
[[gnu::always_inline]] inline __m512 load_half_scales(const KPanel& weights, int64_t group) {
  if (weights.format->scale == ScaleType::fp16) [[unlikely]]
    return scales_of<ScaleType::fp16>(weights.scales, group);
  return scales_of<ScaleType::bf16>(weights.scales, group);
}

inline __m512 load_sixteen_scales(const KPanel& weights, int64_t group) {
  if (has_half_scales(*weights.format)) return load_half_scales(weights, group);
  __m512 scales;
  with_scale_type(*weights.format, [&]<ScaleType type>() { scales = scales_of<type>(weights.scales, group); });
  return scales;
}

// Zero points of a group's neurons; without zero points, `offset` for each.
inline __m512i zeros_or(const KPanel& weights, int64_t group, int offset) {
  if (!weights.zeros) return _mm512_set1_epi32(offset);
  const auto* zeros = reinterpret_cast<const __m128i*>(weights.zeros + group * kBlockNeurons);
  return _mm512_cvtepu8_epi32(_mm_loadu_si128(zeros));
}

// Zero points (or 0) >> shift, repeated in the four bytes of each neuron; and as whole codes, those of dropped weights.
inline __m512i zero_bytes(const KPanel& weights, int64_t group, int shift = 0) {
  const __m512i zeros = _mm512_srl_epi32(zeros_or(weights, group, 0), _mm_cvtsi32_si128(shift));
  return _mm512_mullo_epi32(zeros, _mm512_set1_epi32(0x01010101));
}
inline __m512i dropped(const KPanel& weights, int64_t group) {
  return zero_bytes(weights, group, zero_shift(*weights.format));
}

// Dot products with codes, in steps of zero points: · 2^zero_shift.
inline __m512i in_zero_steps(const KPanel& weights, __m512i sums) {
  return _mm512_sll_epi32(sums, _mm_cvtsi32_si128(zero_shift(*weights.format)));
}

}  // namespace
}  // namespace tilepress
