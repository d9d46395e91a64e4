// A plane is what `vpmovmskb` makes of 64 bytes: their top bits. Doubling the bytes brings up the next.
#include <immintrin.h>

#include "kernels/planes/groups.h"

namespace tilepress {
namespace {

constexpr int kRound = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;

// 64 bytes.
struct Bytes {
  __m256i of[2];
};

__m256i load(const uint16_t* halves) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(halves)); }

void store_top_bits(const Bytes& bytes, uint8_t* plane) {
  for (int i = 0; i < 2; ++i) {
    const int bits = _mm256_movemask_epi8(bytes.of[i]);
    std::memcpy(plane + 4 * i, &bits, sizeof(bits));
  }
}

// The bit of each byte where a plane has a one.
Bytes load_plane(const uint8_t* plane, int bit) {
  const __m256i places = _mm256_set_epi64x(0x0303030303030303, 0x0202020202020202, 0x0101010101010101, 0);
  const __m256i own = _mm256_set1_epi64x(static_cast<int64_t>(0x8040201008040201));
  Bytes bytes;
  for (int i = 0; i < 2; ++i) {
    int bits;
    std::memcpy(&bits, plane + 4 * i, sizeof(bits));
    const __m256i spread = _mm256_and_si256(_mm256_shuffle_epi8(_mm256_set1_epi32(bits), places), own);
    bytes.of[i] = _mm256_and_si256(_mm256_cmpeq_epi8(spread, own), _mm256_set1_epi8(static_cast<char>(bit)));
  }
  return bytes;
}

int largest_field(const uint16_t* halves) {
  __m256i largest = _mm256_setzero_si256();
  for (int i = 0; i < kPlaneValues; i += 16)
    largest = _mm256_max_epu16(largest, _mm256_slli_epi16(load(halves + i), 1));
  const __m128i eight = _mm_max_epu16(_mm256_castsi256_si128(largest), _mm256_extracti128_si256(largest, 1));
  const __m128i least = _mm_minpos_epu16(_mm_xor_si128(eight, _mm_set1_epi16(-1)));
  return (0xffff - _mm_extract_epi16(least, 0)) >> 11;
}

Bytes high_bytes(const uint16_t* halves) {
  Bytes bytes;
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

void store_eight(__m128i magnitudes, __m256 unit, __m128i signs, uint16_t* halves) {
  const __m256 floats = _mm256_cvtepi32_ps(_mm256_cvtepu16_epi32(magnitudes));
  const __m128i eight = _mm256_cvtps_ph(_mm256_mul_ps(floats, unit), kRound);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(halves), _mm_or_si128(eight, signs));
}

struct Avx2 {
  static void to_halves(const float* floats, uint16_t* halves) {
    for (int i = 0; i < kPlaneValues; i += 8) {
      const __m128i eight = _mm256_cvtps_ph(_mm256_loadu_ps(floats + i), kRound);
      _mm_storeu_si128(reinterpret_cast<__m128i*>(halves + i), eight);
    }
  }

  template <int mantissa>
  static uint8_t pack(const uint16_t* halves, uint8_t* planes) {
    store_top_bits(high_bytes(halves), planes);
    const int field = largest_field(halves);
    const __m256 per_unit = _mm256_set1_ps(1.0f / unit_of_field(field, kMaxMantissa));
    Bytes high, low;
    for (int i = 0; i < 2; ++i) magnitude_bytes(halves + 32 * i, per_unit, high.of[i], low.of[i]);
#pragma GCC unroll 16
    for (int plane = 0; plane < mantissa; ++plane) {
      Bytes& from = plane < 8 ? high : low;
      store_top_bits(from, planes + (1 + plane) * kPlaneBytes);
      for (__m256i& bytes : from.of) bytes = _mm256_add_epi8(bytes, bytes);
    }
    return static_cast<uint8_t>(field);
  }

  template <int mantissa>
  static void unpack(const uint8_t* planes, float unit, uint16_t* halves) {
    const __m256i zero = _mm256_setzero_si256();
    Bytes high = {{zero, zero}}, low = {{zero, zero}};
#pragma GCC unroll 16
    for (int plane = 0; plane < mantissa; ++plane) {
      const Bytes ones = load_plane(planes + (1 + plane) * kPlaneBytes, 0x80 >> plane % 8);
      Bytes& to = plane < 8 ? high : low;
      for (int i = 0; i < 2; ++i) to.of[i] = _mm256_or_si256(to.of[i], ones.of[i]);
    }
    const Bytes signs = load_plane(planes, 0x80);
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

}  // namespace

void avx2::pack_planes(Real type, const void* values, int64_t groups, int mantissa, uint8_t* planes, uint8_t* fields) {
  pack_planes_with<Avx2>(type, values, groups, mantissa, planes, fields);
}

void avx2::unpack_planes(const uint8_t* planes, const uint8_t* fields, int64_t groups, int mantissa, uint16_t* halves) {
  unpack_planes_with<Avx2>(planes, fields, groups, mantissa, halves);
}

}  // namespace tilepress
