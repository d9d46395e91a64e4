#include "pack/planes_avx512.h"

namespace tilepress {
namespace {

Words together(const Halves& halves) {
  return {_mm512_permutex2var_epi8(halves.low, _mm512_load_si512(kPlaces.first), halves.high),
          _mm512_permutex2var_epi8(halves.low, _mm512_load_si512(kPlaces.second), halves.high)};
}

uint64_t load_word(const uint8_t* planes) {
  uint64_t word;
  std::memcpy(&word, planes, sizeof(word));
  return word;
}

__m256i to_fp16(__m256i magnitudes, __m512 unit) {
  const __m512 floats = _mm512_cvtepi32_ps(_mm512_cvtepu16_epi32(magnitudes));
  return std::bit_cast<__m256i>(to_fp16(_mm512_mul_ps(floats, unit)));
}

__m512i to_fp16(__m512i magnitudes, __m512 unit) {
  const __m256i low = to_fp16(_mm512_castsi512_si256(magnitudes), unit);
  const __m256i high = to_fp16(_mm512_extracti64x4_epi64(magnitudes, 1), unit);
  return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}

struct Avx512Unpack {
  template <int mantissa>
  static void unpack(const uint8_t* planes, float unit, uint16_t* halves) {
    Halves bytes = {_mm512_setzero_si512(), _mm512_setzero_si512()};
#pragma GCC unroll 16
    for (int plane = 0; plane < mantissa; ++plane) {
      __m512i& to = plane < 8 ? bytes.high : bytes.low;
      const __m512i bit = _mm512_set1_epi8(static_cast<char>(0x80 >> plane % 8));
      to = _mm512_mask_add_epi8(to, load_word(planes + (1 + plane) * kPlaneBytes), to, bit);
    }
    const Words magnitudes = together(bytes);
    const uint64_t signs = load_word(planes);
    const __m512 units = _mm512_set1_ps(unit);
    const __m512i first = to_fp16(magnitudes.first, units), second = to_fp16(magnitudes.second, units);
    const __m512i sign = _mm512_set1_epi16(-0x8000);
    _mm512_storeu_si512(halves, _mm512_mask_add_epi16(first, static_cast<__mmask32>(signs), first, sign));
    _mm512_storeu_si512(halves + 32, _mm512_mask_add_epi16(second, static_cast<__mmask32>(signs >> 32), second, sign));
  }
};

void unpack_f16_planes(const uint8_t* planes, const uint8_t* fields, int64_t groups, int mantissa, uint16_t* halves) {
  unpack_planes_with<Avx512Unpack>(planes, fields, groups, mantissa, halves);
}

TILEPRESS_KERNEL(unpack_f16_planes);

}  // namespace
}  // namespace tilepress
