#pragma once

#include <immintrin.h>

#include "quantize/scales.h"
#include "tilepress/kv_bfp.h"

namespace tilepress {
namespace {

// What 1 stands for in each lane; wide: values of nine bits, otherwise of the upper five.
[[gnu::always_inline]] inline __m512 lane_units(const uint8_t* exponents, bool wide) {
  const __m128i nibbles = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(exponents));
  const __m128i both = _mm_unpacklo_epi64(nibbles, _mm_srli_epi16(nibbles, 4));
  const __m512i low = _mm512_cvtepu8_epi32(_mm_and_si128(both, _mm_set1_epi8(15)));
  const auto high = static_cast<__mmask16>(exponents[8] | exponents[9] << 8);
  const __m512i field = _mm512_mask_add_epi32(low, high, low, _mm512_set1_epi32(16));
  const __m512i least = _mm512_max_epi32(field, _mm512_set1_epi32(1));
  const __m512i biased = _mm512_add_epi32(least, _mm512_set1_epi32(wide ? 127 - 22 : 127 - 18));
  return _mm512_castsi512_ps(_mm512_slli_epi32(biased, 23));
}

}  // namespace
}  // namespace tilepress
