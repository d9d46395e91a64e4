// What the end of a segment needs, for sixteen neurons at once. In a nameless namespace for the reason that
// pack_block.h gives.
#pragma once

#include <immintrin.h>

#include "kernels/linear_f32_i8_int/linear_span.h"

namespace tilepress {
namespace {

// Scales of two bytes, what groups mostly have.
inline bool has_half_scales(const Format& format) {
  return format.scale == ScaleType::bf16 || format.scale == ScaleType::fp16;
}
[[gnu::always_inline]] inline __m512 load_half_scales(const SpanWeights& weights, int64_t group) {
  const auto* from = static_cast<const uint16_t*>(weights.scales) + group * kBlockNeurons;
  const __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  if (weights.format->scale == ScaleType::fp16) [[unlikely]]
    return _mm512_cvtph_ps(halves);
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
}

inline __m512 load_sixteen_scales(const SpanWeights& weights, int64_t group) {
  if (has_half_scales(*weights.format)) return load_half_scales(weights, group);
  if (weights.format->scale == ScaleType::fp32) {
    return _mm512_loadu_ps(static_cast<const float*>(weights.scales) + group * kBlockNeurons);
  }
  float scales[kBlockNeurons];
  load_scales(weights, group, scales);
  return _mm512_loadu_ps(scales);
}

// What each neuron's operands, times 2^zero_shift, are raised by in this group: its zero point, or what made signed
// ones unsigned.
inline __m512i raised_by(const SpanWeights& weights, int64_t group, int raise) {
  if (!weights.zeros) return _mm512_set1_epi32(raise);
  const auto* zeros = reinterpret_cast<const __m128i*>(weights.zeros + group * kBlockNeurons);
  return _mm512_cvtepu8_epi32(_mm_loadu_si128(zeros));
}

// The code that a dropped weight has: the zero point of its neuron, or 0.
inline __m512i dropped(const SpanWeights& weights, int64_t group) {
  if (!weights.zeros) return _mm512_setzero_si512();
  const __m512i codes = _mm512_srl_epi32(raised_by(weights, group, 0), _mm_cvtsi32_si128(zero_shift(*weights.format)));
  return _mm512_mullo_epi32(codes, _mm512_set1_epi32(0x01010101));
}

// Sums of products with codes as sums of steps of a zero point.
inline __m512i in_zero_steps(const SpanWeights& weights, __m512i sums) {
  return _mm512_sll_epi32(sums, _mm_cvtsi32_si128(zero_shift(*weights.format)));
}

}  // namespace
}  // namespace tilepress
