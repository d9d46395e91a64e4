#include "attention/exponentials_avx512.h"
#include "quantize/block_floats.h"
#include "tilepress/kv_bfp.h"

namespace tilepress {
namespace {

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
