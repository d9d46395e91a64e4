// Shared by score_f32_bfp_bfp and mix_f32_u8_bfp on AVX2.
#pragma once

#include <immintrin.h>

#include "attention/bfp_page.h"

namespace tilepress {
namespace {

// Eight lanes at a time, by products of unsigned and signed bytes. Codes have five bits, so eight products fit 16 bits:
// four pair sums are added before they are widened.
struct Avx2Lanes {
  // sums += codes(r) · bytes(i, r) over all rows r of a unit, for each i
  template <int count, class Codes, class Bytes, class Product>
  static void dot(const Codes& codes, const Bytes& bytes, const Product& product, __m256i* sums) {
    for (int r = 0; r < kKvRows; r += 4) {
      const __m256i four_rows[4] = {codes(r), codes(r + 1), codes(r + 2), codes(r + 3)};
      for (int i = 0; i < count; ++i) {
        __m256i pairs = product(four_rows[0], bytes(i, r));
        for (int j = 1; j < 4; ++j) pairs = _mm256_add_epi16(pairs, product(four_rows[j], bytes(i, r + j)));
        sums[i] = _mm256_add_epi32(sums[i], _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
      }
    }
  }

  static __m256i load(const uint8_t* from) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)); }

  static __m256i nibbles_of(const uint8_t* from, int r) {
    const __m256i both = load(from + 64 * (r & 3));
    return _mm256_and_si256(r < 4 ? both : _mm256_srli_epi16(both, 4), _mm256_set1_epi8(15));
  }

  static __m256i negative(__m256i signs, int r) {
    const __m256i bit = _mm256_set1_epi8(static_cast<char>(1 << r));
    return _mm256_cmpeq_epi8(_mm256_and_si256(signs, bit), bit);
  }

  static __m256i four(const void* from) {
    int32_t bytes;
    __builtin_memcpy(&bytes, from, 4);
    return _mm256_set1_epi32(bytes);
  }

  static __m256 added(__m256 total, __m256i sums, const float* units, float unit) {
    const __m256 scale = _mm256_mul_ps(_mm256_loadu_ps(units), _mm256_set1_ps(unit));
    return _mm256_fmadd_ps(_mm256_cvtepi32_ps(sums), scale, total);
  }
};

}  // namespace
}  // namespace tilepress
