// Shared by score_f32_bfp_bfp and mix_f32_u8_bfp on AVX-512.
#pragma once

#include "attention/bfp_page.h"
#include "attention/lane_units_avx512.h"

namespace tilepress {
namespace {

// Sixteen lanes at a time, by products of unsigned and signed bytes.
struct Avx512Lanes {
  static __m512i load(const uint8_t* from) { return _mm512_loadu_si512(from); }

  static __m512i nibbles_of(const uint8_t* from, int r) {
    const __m512i both = load(from + 64 * (r & 3));
    return _mm512_and_si512(r < 4 ? both : _mm512_srli_epi16(both, 4), _mm512_set1_epi8(15));
  }

  // Four bytes of a row, broadcast to every lane.
  static __m512i four(const void* from) {
    int32_t bytes;
    __builtin_memcpy(&bytes, from, 4);
    return _mm512_set1_epi32(bytes);
  }

  static __m512 added(__m512 total, __m512i sums, __m512 units, float unit) {
    return _mm512_fmadd_ps(_mm512_cvtepi32_ps(sums), _mm512_mul_ps(units, _mm512_set1_ps(unit)), total);
  }
};

}  // namespace
}  // namespace tilepress
