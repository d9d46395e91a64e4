#include <immintrin.h>

#include <initializer_list>

#include "quantize/block_floats.h"
#include "tilepress/kv_bfp.h"

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

inline __m128i whole_bytes(__m512i weights, __m512 per_unit) {
  return _mm512_cvtepi32_epi8(_mm512_cvttps_epi32(_mm512_mul_ps(_mm512_castsi512_ps(weights), per_unit)));
}

inline void weigh_group(const float* scores, __m512 largest, uint8_t* values, int32_t* sum, float* unit) {
  const __m512i low = raised_to_fp16(exponentials(_mm512_sub_ps(_mm512_loadu_ps(scores), largest)));
  const __m512i high = raised_to_fp16(exponentials(_mm512_sub_ps(_mm512_loadu_ps(scores + 16), largest)));
  *unit = unit_of(_mm512_reduce_max_epu32(_mm512_max_epu32(low, high)), 8);
  const __m512 per_unit = _mm512_set1_ps(std::bit_cast<float>((254u << 23) - std::bit_cast<uint32_t>(*unit)));
  const __m256i bytes = _mm256_set_m128i(whole_bytes(high, per_unit), whole_bytes(low, per_unit));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(values), bytes);
  const __m256i sums = _mm256_sad_epu8(bytes, _mm256_setzero_si256());
  const __m128i two = _mm_add_epi64(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1));
  *sum = _mm_cvtsi128_si32(_mm_add_epi64(two, _mm_unpackhi_epi64(two, two)));
}

void softmax_u8_f32(const float* scores, int64_t count, float largest, uint8_t* values, int32_t* sums, float* units) {
  const __m512 of_all = _mm512_set1_ps(largest);
  for (int64_t first = 0; first < count; first += kKvGroup) {
    weigh_group(scores + first, of_all, values + first, sums + first / kKvGroup, units + first / kKvGroup);
  }
}

TILEPRESS_KERNEL(softmax_u8_f32);

}  // namespace
}  // namespace tilepress
