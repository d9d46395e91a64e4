#include "pack/planes_avx512.h"

namespace tilepress {
namespace {

Halves apart(const Words& words) {
  return {_mm512_permutex2var_epi8(words.first, _mm512_load_si512(kPlaces.high), words.second),
          _mm512_permutex2var_epi8(words.first, _mm512_load_si512(kPlaces.low), words.second)};
}

void store_word(uint64_t word, uint8_t* planes) { std::memcpy(planes, &word, sizeof(word)); }

int largest_field(const Words& words) {
  const __m512i both = _mm512_max_epu16(_mm512_slli_epi16(words.first, 1), _mm512_slli_epi16(words.second, 1));
  const __m256i half = _mm256_max_epu16(_mm512_castsi512_si256(both), _mm512_extracti64x4_epi64(both, 1));
  const __m128i most = _mm_max_epu16(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
  const __m128i least = _mm_minpos_epu16(_mm_xor_si128(most, _mm_set1_epi16(-1)));
  return (0xffff - _mm_extract_epi16(least, 0)) >> 11;
}

// Magnitudes with 16 bits under an exponent, which is at least 1.
__m512i magnitudes_under(__m512i exponent, __m512i halves) {
  const __mmask32 normal = _mm512_test_epi16_mask(halves, _mm512_set1_epi16(0x7c00));
  const __m512i fractions = _mm512_and_si512(_mm512_slli_epi16(halves, 5), _mm512_set1_epi16(0x7fe0));
  const __m512i significands = _mm512_mask_add_epi16(fractions, normal, fractions, _mm512_set1_epi16(-0x8000));
  const __m512i field = _mm512_srli_epi16(_mm512_slli_epi16(halves, 1), 11);
  const __m512i own = _mm512_max_epu16(field, _mm512_set1_epi16(1));
  return _mm512_srlv_epi16(significands, _mm512_sub_epi16(exponent, own));
}

struct Avx512Pack {
  template <int mantissa>
  static uint8_t pack(const uint16_t* halves, uint8_t* planes) {
    const Words values = {_mm512_loadu_si512(halves), _mm512_loadu_si512(halves + 32)};
    const uint64_t signs = _mm512_movepi16_mask(values.first);
    store_word(signs | static_cast<uint64_t>(_mm512_movepi16_mask(values.second)) << 32, planes);
    const int field = largest_field(values);
    const __m512i exponent = _mm512_set1_epi16(static_cast<int16_t>(most(field, 1)));
    Halves bytes = apart({magnitudes_under(exponent, values.first), magnitudes_under(exponent, values.second)});
#pragma GCC unroll 16
    for (int plane = 0; plane < mantissa; ++plane) {
      __m512i& from = plane < 8 ? bytes.high : bytes.low;
      store_word(_mm512_movepi8_mask(from), planes + (1 + plane) * kPlaneBytes);
      from = _mm512_add_epi8(from, from);
    }
    return static_cast<uint8_t>(field);
  }
};

void pack_planes_fp(FloatType type, const void* values, int64_t groups, int mantissa, uint8_t* planes,
                    uint8_t* fields) {
  pack_planes_with<Avx512Pack>(type, values, groups, mantissa, planes, fields);
}

TILEPRESS_KERNEL(pack_planes_fp);

}  // namespace
}  // namespace tilepress
