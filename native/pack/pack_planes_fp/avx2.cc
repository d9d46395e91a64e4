#include "pack/planes_avx2.h"

namespace tilepress {
namespace {

__m256i load(const uint16_t* halves) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(halves)); }

void store_top_bits(const ByteGroup& bytes, uint8_t* plane) {
  for (int i = 0; i < 2; ++i) {
    const int bits = _mm256_movemask_epi8(bytes.of[i]);
    std::memcpy(plane + 4 * i, &bits, sizeof(bits));
  }
}

int largest_field(const uint16_t* halves) {
  __m256i largest = _mm256_setzero_si256();
  for (int i = 0; i < kPlaneValues; i += 16)
    largest = _mm256_max_epu16(largest, _mm256_slli_epi16(load(halves + i), 1));
  const __m128i eight = _mm_max_epu16(_mm256_castsi256_si128(largest), _mm256_extracti128_si256(largest, 1));
  const __m128i least = _mm_minpos_epu16(_mm_xor_si128(eight, _mm_set1_epi16(-1)));
  return (0xffff - _mm_extract_epi16(least, 0)) >> 11;
}

ByteGroup high_bytes(const uint16_t* halves) {
  ByteGroup bytes;
  for (int i = 0; i < 2; ++i) {
    const __m256i first = _mm256_srli_epi16(load(halves + 32 * i), 8);
    const __m256i second = _mm256_srli_epi16(load(halves + 32 * i + 16), 8);
    bytes.of[i] = _mm256_permute4x64_epi64(_mm256_packus_epi16(first, second), 0xd8);
  }
  return bytes;
}

// Eight magnitudes with 16 bits. There is no shift of words by so many places each, so floats do it: exactly, as they
// are multiplied by a power of two.
__m256i eight_magnitudes(const uint16_t* halves, __m256 per_unit) {
  const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(halves));
  const __m256 floats = _mm256_cvtph_ps(_mm_and_si128(bits, _mm_set1_epi16(0x7fff)));
  return _mm256_cvttps_epi32(_mm256_mul_ps(floats, per_unit));
}

// High and low bytes of 32 magnitudes. Packing interleaves the lanes, four values at a time.
void magnitude_bytes(const uint16_t* halves, __m256 per_unit, __m256i& high, __m256i& low) {
  __m256i words[2];
  for (int i = 0; i < 2; ++i) {
    words[i] = _mm256_packus_epi32(eight_magnitudes(halves + 16 * i, per_unit),
                                   eight_magnitudes(halves + 16 * i + 8, per_unit));
  }
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7), byte = _mm256_set1_epi16(0xff);
  const __m256i highs = _mm256_packus_epi16(_mm256_srli_epi16(words[0], 8), _mm256_srli_epi16(words[1], 8));
  const __m256i lows = _mm256_packus_epi16(_mm256_and_si256(words[0], byte), _mm256_and_si256(words[1], byte));
  high = _mm256_permutevar8x32_epi32(highs, order);
  low = _mm256_permutevar8x32_epi32(lows, order);
}

struct Avx2Pack {
  template <int mantissa>
  static uint8_t pack(const uint16_t* halves, uint8_t* planes) {
    store_top_bits(high_bytes(halves), planes);
    const int field = largest_field(halves);
    const __m256 per_unit = _mm256_set1_ps(1.0f / unit_of_field(field, kMaxMantissa));
    ByteGroup high, low;
    for (int i = 0; i < 2; ++i) magnitude_bytes(halves + 32 * i, per_unit, high.of[i], low.of[i]);
#pragma GCC unroll 16
    for (int plane = 0; plane < mantissa; ++plane) {
      ByteGroup& from = plane < 8 ? high : low;
      store_top_bits(from, planes + (1 + plane) * kPlaneBytes);
      for (__m256i& bytes : from.of) bytes = _mm256_add_epi8(bytes, bytes);
    }
    return static_cast<uint8_t>(field);
  }
};

void pack_planes_fp(FloatType type, const void* values, int64_t groups, int mantissa, uint8_t* planes,
                    uint8_t* fields) {
  pack_planes_with<Avx2Pack>(type, values, groups, mantissa, planes, fields);
}

TILEPRESS_KERNEL(pack_planes_fp);

}  // namespace
}  // namespace tilepress
