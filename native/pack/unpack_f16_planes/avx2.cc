#include "pack/planes_avx2.h"

namespace tilepress {
namespace {

// The bit of each byte where a plane has a one.
ByteGroup load_plane(const uint8_t* plane, int bit) {
  const __m256i places = _mm256_set_epi64x(0x0303030303030303, 0x0202020202020202, 0x0101010101010101, 0);
  const __m256i own = _mm256_set1_epi64x(static_cast<int64_t>(0x8040201008040201));
  ByteGroup bytes;
  for (int i = 0; i < 2; ++i) {
    int bits;
    std::memcpy(&bits, plane + 4 * i, sizeof(bits));
    const __m256i spread = _mm256_and_si256(_mm256_shuffle_epi8(_mm256_set1_epi32(bits), places), own);
    bytes.of[i] = _mm256_and_si256(_mm256_cmpeq_epi8(spread, own), _mm256_set1_epi8(static_cast<char>(bit)));
  }
  return bytes;
}

void store_eight(__m128i magnitudes, __m256 unit, __m128i signs, uint16_t* halves) {
  const __m256 floats = _mm256_cvtepi32_ps(_mm256_cvtepu16_epi32(magnitudes));
  const __m128i eight = std::bit_cast<__m128i>(to_fp16(_mm256_mul_ps(floats, unit)));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(halves), _mm_or_si128(eight, signs));
}

struct Avx2Unpack {
  template <int mantissa>
  static void unpack(const uint8_t* planes, float unit, uint16_t* halves) {
    const __m256i zero = _mm256_setzero_si256();
    ByteGroup high = {{zero, zero}}, low = {{zero, zero}};
#pragma GCC unroll 16
    for (int plane = 0; plane < mantissa; ++plane) {
      const ByteGroup ones = load_plane(planes + (1 + plane) * kPlaneBytes, 0x80 >> plane % 8);
      ByteGroup& to = plane < 8 ? high : low;
      for (int i = 0; i < 2; ++i) to.of[i] = _mm256_or_si256(to.of[i], ones.of[i]);
    }
    const ByteGroup signs = load_plane(planes, 0x80);
    const __m256 units = _mm256_set1_ps(unit);
    for (int i = 0; i < 2; ++i, halves += 32) {
      const __m256i words[2] = {_mm256_unpacklo_epi8(low.of[i], high.of[i]),
                                _mm256_unpackhi_epi8(low.of[i], high.of[i])};
      const __m256i tops[2] = {_mm256_unpacklo_epi8(zero, signs.of[i]), _mm256_unpackhi_epi8(zero, signs.of[i])};
      for (int j = 0; j < 2; ++j) {
        store_eight(_mm256_castsi256_si128(words[j]), units, _mm256_castsi256_si128(tops[j]), halves + 8 * j);
        store_eight(_mm256_extracti128_si256(words[j], 1), units, _mm256_extracti128_si256(tops[j], 1),
                    halves + 16 + 8 * j);
      }
    }
  }
};

void unpack_f16_planes(const uint8_t* planes, const uint8_t* fields, int64_t groups, int mantissa, uint16_t* halves) {
  unpack_planes_with<Avx2Unpack>(planes, fields, groups, mantissa, halves);
}

TILEPRESS_KERNEL(unpack_f16_planes);

}  // namespace
}  // namespace tilepress
