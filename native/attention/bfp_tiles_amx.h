// Tiles and accumulators of attention for AMX, by AVX-512.
#pragma once

#include "attention/bfp_tiles.h"
#include "attention/lane_units_avx512.h"
#include "matrix_unit/amx_bf16.h"

namespace tilepress {
namespace {

struct VectorTiles {
  // The five bits of a high, sign included, index a table.
  static void highs(const uint8_t* codes, uint16_t* to) {
    const __m512i table = table_of<true>(), signs = load(codes + 256), sign = _mm512_set1_epi8(16);
    in_rows(codes, table, to, [&](__m512i nibbles, int row) {
      const __m512i moved = row < 4 ? _mm512_slli_epi16(signs, static_cast<unsigned>(4 - row))
                                    : _mm512_srli_epi16(signs, static_cast<unsigned>(row - 4));
      return _mm512_ternarylogic_epi32(nibbles, moved, sign, 0xf8);  // nibbles | (moved & sign)
    });
  }

  static void lows(const uint8_t* lows, uint16_t* to) {
    in_rows(lows, table_of<false>(), to, [](__m512i nibbles, int) { return nibbles; });
  }

  static void units(const uint8_t* exponents, float* to) { _mm512_storeu_ps(to, lane_units(exponents, true)); }

  static void weights(const uint8_t* values, const float* units, int64_t rows, uint16_t* to) {
    for (int64_t row = 0; row < kTileRows; ++row, values += kKvSegment, units += kKvSegmentPages, to += kKvGroup) {
      __m512i both = _mm512_setzero_si512();
      if (row < rows) {
        const __m512 unit = _mm512_set1_ps(*units);
        const auto half = [&](int at) {
          const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(values + at));
          return _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(bytes)), unit);
        };
        both = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(half(16), half(0)));
      }
      _mm512_storeu_si512(to, both);
    }
  }

 private:
  static __m512i load(const void* from) { return _mm512_loadu_si512(from); }

  // bf16 of 16 * high, or of a low, for each of 32 indices.
  struct Table {
    constexpr explicit Table(bool highs) : of() {
      for (int i = 0; i < 32; ++i) {
        const int value = highs ? 16 * (i < 16 ? i : i - 32) : i % 16;
        of[i] = static_cast<uint16_t>(std::bit_cast<uint32_t>(static_cast<float>(value)) >> 16);
      }
    }
    alignas(64) uint16_t of[32];
  };
  template <bool highs>
  static __m512i table_of() {
    static constexpr Table kTable(highs);
    return load(kTable.of);
  }

  // Bytes 4 * lane + first and the one after it, as words.
  struct Pairs {
    constexpr explicit Pairs(int first) : of() {
      for (int i = 0; i < 64; ++i) of[i] = i % 2 ? 0x80 : static_cast<uint8_t>(i / 4 * 4 % 16 + first + i % 4 / 2);
    }
    alignas(64) uint8_t of[64];
  };

  template <class Index>
  [[gnu::always_inline]] static void in_rows(const uint8_t* from, __m512i table, uint16_t* to, const Index& index) {
    static constexpr Pairs kFirst(0), kNext(2);
    const __m512i first = load(kFirst.of), next = load(kNext.of), low = _mm512_set1_epi8(15);
#pragma GCC unroll 8
    for (int row = 0; row < kKvRows; ++row, to += 2 * 32) {
      const __m512i both = load(from + 64 * (row & 3));
      const __m512i codes = index(_mm512_and_si512(row < 4 ? both : _mm512_srli_epi16(both, 4), low), row);
      _mm512_storeu_si512(to, _mm512_permutexvar_epi16(_mm512_shuffle_epi8(codes, first), table));
      _mm512_storeu_si512(to + 32, _mm512_permutexvar_epi16(_mm512_shuffle_epi8(codes, next), table));
    }
  }
};

class VectorSums {
 public:
  [[gnu::always_inline]] VectorSums(const float* from, int64_t stride, int64_t rows) {
#pragma GCC unroll 16
    for (int row = 0; row < kTileRows; ++row) {
      of_[row] = from && row < rows ? _mm512_loadu_ps(from + row * stride) : _mm512_setzero_ps();
    }
  }
  [[gnu::always_inline]] void store(float* to, int64_t stride, int64_t rows, float factor) const {
    const __m512 by = _mm512_set1_ps(factor);
#pragma GCC unroll 16
    for (int row = 0; row < kTileRows; ++row) {
      if (row < rows) _mm512_storeu_ps(to + row * stride, _mm512_mul_ps(of_[row], by));
    }
  }
  [[gnu::always_inline]] void add(const float* products, const float* units) {
    const __m512 by = _mm512_loadu_ps(units);
#pragma GCC unroll 16
    for (int row = 0; row < kTileRows; ++row) {
      of_[row] = _mm512_fmadd_ps(_mm512_load_ps(products + row * kKvLanes), by, of_[row]);
    }
  }

 private:
  __m512 of_[kTileRows];
};

using TileAttention = AttentionOnTiles<Bf16Unit, VectorTiles, VectorSums>;

}  // namespace
}  // namespace tilepress
