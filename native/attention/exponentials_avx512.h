// Softmax weights by AVX-512.
#pragma once

#include <immintrin.h>

#include <initializer_list>

namespace tilepress {
namespace {

// exp of simd/math.h to the bit, for -40 <= x <= 0. The last factor, a power of two, is added to the exponents.
inline __m512 exponentials(__m512 x) {
  const __m512 whole = _mm512_set1_ps(0x1.8p23f);
  x = _mm512_max_ps(x, _mm512_set1_ps(-40.0f));
  const __m512 rounded = _mm512_add_ps(_mm512_mul_ps(x, _mm512_set1_ps(1.44269504088896341f)), whole);
  const __m512 n = _mm512_sub_ps(rounded, whole);
  __m512 r = _mm512_sub_ps(x, _mm512_mul_ps(n, _mm512_set1_ps(0.693359375f)));
  r = _mm512_sub_ps(r, _mm512_mul_ps(n, _mm512_set1_ps(-2.12194440e-4f)));
  __m512 sum = _mm512_set1_ps(1.9875691500e-4f);
#pragma GCC unroll 5
  for (float term : {1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f, 1.6666665459e-1f, 5.0000001201e-1f}) {
    sum = _mm512_add_ps(_mm512_mul_ps(sum, r), _mm512_set1_ps(term));
  }
  sum = _mm512_add_ps(_mm512_mul_ps(sum, _mm512_mul_ps(r, r)), r);
  sum = _mm512_add_ps(sum, _mm512_set1_ps(1.0f));
  const __m512i power = _mm512_slli_epi32(_mm512_castps_si512(rounded), 23);
  return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(sum), power));
}

// Half a unit in the last place that FP16 has at x, added to it. Bits are cut off that are at least four times as
// large, so that it makes no difference which way halves are rounded: either reaches the next such bit or none does.
inline __m512i raised_to_fp16(__m512 x) {
  const __m512i normal = _mm512_add_epi32(_mm512_castps_si512(x), _mm512_set1_epi32(1 << 12));
  const __m512 subnormal = _mm512_add_ps(x, _mm512_set1_ps(0x1p-25f));
  return _mm512_max_epu32(normal, _mm512_castps_si512(subnormal));
}

}  // namespace
}  // namespace tilepress
