#pragma once

#include <immintrin.h>

#include "pack/unpack_block.h"
#include "simd/prefetch_avx512.h"

namespace tilepress {
namespace {

// How 64 codes of `bits` bits are taken apart: eight of them are `bits` bytes, which go to one 64-bit lane, and a shift
// for each byte of the lane does the rest.
struct StreamTables {
  constexpr explicit StreamTables(int bits) : places(), shifts(), low(static_cast<char>((1 << bits) - 1)) {
    for (int i = 0; i < 64; ++i) {
      places[i] = static_cast<uint8_t>(i / 8 * bits + i % 8);
      shifts[i] = static_cast<uint8_t>(i % 8 * bits);
    }
  }

  alignas(64) uint8_t places[64], shifts[64];
  char low;  // the bits of a code
};

constexpr StreamTables kStreamTables[9] = {StreamTables(0), StreamTables(1), StreamTables(2),
                                           StreamTables(3), StreamTables(4), StreamTables(5),
                                           StreamTables(6), StreamTables(7), StreamTables(8)};

// 64 codes, one per byte.
[[gnu::always_inline]] inline __m512i unpack_line(const StreamTables& tables, const uint8_t* in) {
  const __m512i places = _mm512_load_si512(tables.places), shifts = _mm512_load_si512(tables.shifts);
  const __m512i lanes = _mm512_permutexvar_epi8(places, _mm512_loadu_si512(in));
  return _mm512_and_si512(_mm512_multishift_epi64_epi8(shifts, lanes), _mm512_set1_epi8(tables.low));
}

struct Vbmi2 {
  static void unpack_stream(int bits, const uint8_t* in, int64_t count, uint8_t* codes) {
    const StreamTables tables = kStreamTables[bits];  // a copy: stores of bytes cannot alias it
    for (int64_t i = 0; i < count; i += 64, in += 8 * bits) _mm512_storeu_si512(codes + i, unpack_line(tables, in));
  }

  static int64_t expand(const uint8_t* nonzeros, const uint8_t* mask, int count, uint8_t* codes, uint8_t* keep) {
    int64_t consumed = 0;
    for (int i = 0; i < count; i += 64) {
      uint64_t bits;
      std::memcpy(&bits, mask + i / 8, 8);
      _mm512_storeu_si512(codes + i, _mm512_maskz_expand_epi8(bits, _mm512_loadu_si512(nonzeros + consumed)));
      if (keep) _mm512_storeu_si512(keep + i, _mm512_maskz_set1_epi8(bits, 1));
      consumed += _mm_popcnt_u64(bits);
    }
    return consumed;
  }

  static int64_t expand(const uint16_t* nonzeros, const uint8_t* mask, int count, uint16_t* codes, uint8_t* keep) {
    int64_t consumed = 0;
    for (int i = 0; i < count; i += 32) {
      uint32_t bits;
      std::memcpy(&bits, mask + i / 8, 4);
      _mm512_storeu_si512(codes + i, _mm512_maskz_expand_epi16(bits, _mm512_loadu_si512(nonzeros + consumed)));
      if (keep) _mm256_storeu_si256(reinterpret_cast<__m256i*>(keep + i), _mm256_maskz_set1_epi8(bits, 1));
      consumed += _mm_popcnt_u32(bits);
    }
    return consumed;
  }
};

}  // namespace
}  // namespace tilepress
