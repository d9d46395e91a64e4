#pragma once

#include <immintrin.h>

#include "kernels/unpack/unpack_block.h"

namespace tilepress {
namespace {

struct Avx512 {
  // Eight codes of `bits` bits are `bits` bytes: a permutation brings them into one 64-bit lane, and a shift for each
  // byte of the lane takes them apart.
  static void unpack_stream(int bits, const uint8_t* in, int64_t count, uint8_t* codes) {
    alignas(64) uint8_t places[64], shifts[64];
    for (int i = 0; i < 64; ++i) {
      places[i] = static_cast<uint8_t>(i / 8 * bits + i % 8);
      shifts[i] = static_cast<uint8_t>(i % 8 * bits);
    }
    const __m512i gather = _mm512_load_si512(places), shift = _mm512_load_si512(shifts);
    const __m512i low_bits = _mm512_set1_epi8(static_cast<char>((1 << bits) - 1));
    for (int64_t i = 0; i < count; i += 64, in += 8 * bits) {
      const __m512i lanes = _mm512_permutexvar_epi8(gather, _mm512_loadu_si512(in));
      _mm512_storeu_si512(codes + i, _mm512_and_si512(_mm512_multishift_epi64_epi8(shift, lanes), low_bits));
    }
  }

  static int64_t expand(const uint8_t* kept, const uint8_t* mask, int count, uint8_t* codes, uint8_t* keep) {
    int64_t taken = 0;
    for (int i = 0; i < count; i += 64) {
      uint64_t bits;
      std::memcpy(&bits, mask + i / 8, 8);
      _mm512_storeu_si512(codes + i, _mm512_maskz_expand_epi8(bits, _mm512_loadu_si512(kept + taken)));
      _mm512_storeu_si512(keep + i, _mm512_maskz_set1_epi8(bits, 1));
      taken += _mm_popcnt_u64(bits);
    }
    return taken;
  }

  static int64_t expand(const uint16_t* kept, const uint8_t* mask, int count, uint16_t* codes, uint8_t* keep) {
    int64_t taken = 0;
    for (int i = 0; i < count; i += 32) {
      uint32_t bits;
      std::memcpy(&bits, mask + i / 8, 4);
      _mm512_storeu_si512(codes + i, _mm512_maskz_expand_epi16(bits, _mm512_loadu_si512(kept + taken)));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(keep + i), _mm256_maskz_set1_epi8(bits, 1));
      taken += _mm_popcnt_u32(bits);
    }
    return taken;
  }
};

}  // namespace
}  // namespace tilepress
