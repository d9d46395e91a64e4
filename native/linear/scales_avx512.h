// Scales of 16 neurons at once.
#pragma once

#include <immintrin.h>

#include "quantize/scales.h"

namespace tilepress {
namespace {

// The 16 scales of a group as float32.
template <ScaleType type>
[[gnu::always_inline]] inline __m512 scales_of(const void* scales, int64_t group) {
  const int64_t at = group * kBlockNeurons;
  if constexpr (type == ScaleType::none) return _mm512_set1_ps(1.0f);
  if constexpr (type == ScaleType::fp32) return _mm512_loadu_ps(static_cast<const float*>(scales) + at);
  if constexpr (type == ScaleType::bf16 || type == ScaleType::fp16) {
    const auto* from = reinterpret_cast<const __m256i*>(static_cast<const uint16_t*>(scales) + at);
    const __m256i halves = _mm256_loadu_si256(from);
    if constexpr (type == ScaleType::fp16) return _mm512_cvtph_ps(halves);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
  }
  // E8M0: float32 exponents, except that code 0 is the subnormal 2^-127 and code 255 is NaN.
  const auto* from = reinterpret_cast<const __m128i*>(static_cast<const uint8_t*>(scales) + at);
  const __m512i codes = _mm512_cvtepu8_epi32(_mm_loadu_si128(from)), powers = _mm512_slli_epi32(codes, 23);
  const __m512i scales_or_inf = _mm512_max_epu32(powers, _mm512_set1_epi32(1 << 22));
  const __mmask16 is_nan = _mm512_cmpeq_epi32_mask(codes, _mm512_set1_epi32(255));
  return _mm512_castsi512_ps(_mm512_mask_mov_epi32(scales_or_inf, is_nan, _mm512_set1_epi32(0x7fc00000)));
}

// Calls work<type>() with the format's type of scales.
template <class Work>
void with_scale_type(const Format& format, const Work& work) {
  switch (format.scale) {
    case ScaleType::none:
      return work.template operator()<ScaleType::none>();
    case ScaleType::e8m0:
      return work.template operator()<ScaleType::e8m0>();
    case ScaleType::bf16:
      return work.template operator()<ScaleType::bf16>();
    case ScaleType::fp16:
      return work.template operator()<ScaleType::fp16>();
    case ScaleType::fp32:
      return work.template operator()<ScaleType::fp32>();
  }
}

}  // namespace
}  // namespace tilepress
