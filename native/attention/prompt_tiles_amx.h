// Left operands and accumulators of prompts for AMX, by AVX-512.
#pragma once

#include <utility>

#include "attention/prompt_tiles.h"
#include "matrix_unit/amx_bf16.h"

namespace tilepress {
namespace {

struct VectorRows {
  static void highs(const ConstKvUnits& unit, uint16_t* to) {
    const __m512i signs = load(unit.codes + 256), sign = _mm512_set1_epi8(16);
    rows_of(unit.codes, unit.exponents, table_of<true>(), to, [&](__m512i nibbles, int row) {
      const __m512i moved = row < 4 ? _mm512_slli_epi16(signs, static_cast<unsigned>(4 - row))
                                    : _mm512_srli_epi16(signs, static_cast<unsigned>(row - 4));
      return _mm512_ternarylogic_epi32(nibbles, moved, sign, 0xf8);  // nibbles | (moved & sign)
    });
  }
  static void lows(const ConstKvUnits& unit, uint16_t* to) {
    rows_of(unit.lows, unit.exponents, table_of<false>(), to, [](__m512i nibbles, int) { return nibbles; });
  }

 private:
  static constexpr int kMostField = 31;

  static __m512i load(const void* from) { return _mm512_loadu_si512(from); }

  // bf16 of 16 * high, or of a low, for each of 32 indices, under the largest exponent.
  struct Table {
    constexpr explicit Table(bool highs) : of() {
      constexpr float kUnit = 1 << (kMostField - 22);
      for (int i = 0; i < 32; ++i) {
        const int value = highs ? 16 * (i < 16 ? i : i - 32) : i % 16;
        of[i] = static_cast<uint16_t>(std::bit_cast<uint32_t>(static_cast<float>(value) * kUnit) >> 16);
      }
    }
    alignas(64) uint16_t of[32];
  };
  template <bool highs>
  static __m512i table_of() {
    static constexpr Table kTable(highs);
    return load(kTable.of);
  }

  // Of two vectors that have bytes 0 to 15 and 16 to 31 of four lanes, those of lane `lane`, widened.
  struct Widened {
    constexpr explicit Widened(int lane) : of() {
      for (int i = 0; i < 64; ++i) of[i] = static_cast<uint8_t>(16 * lane + i / 2 % 16 + (i / 2 < 16 ? 0 : 64));
    }
    alignas(64) uint8_t of[64];
  };
  template <int lane>
  static __m512i widened(__m512i first, __m512i second) {
    static constexpr Widened kBytes(lane);
    return _mm512_maskz_permutex2var_epi8(0x5555555555555555, first, load(kBytes.of), second);
  }

  // What exponents lack to the largest, in the place of bf16's exponents.
  static void steps_of(const uint8_t* exponents, uint16_t* steps) {
    const int bits = exponents[8] | exponents[9] << 8;
    for (int lane = 0; lane < kKvLanes; ++lane) {
      const int nibble = lane < 8 ? exponents[lane] & 15 : exponents[lane - 8] >> 4;
      steps[lane] = static_cast<uint16_t>((kMostField - most(nibble | (bits >> lane & 1) << 4, 1)) << 7);
    }
  }

  // Indices of eight rows, four values of each lane in a row, become 16 rows, of 32 values of one lane. A step is
  // subtracted with saturation: zero stays, and all else is larger.
  template <class Index>
  [[gnu::always_inline]] static void rows_of(const uint8_t* from, const uint8_t* exponents, __m512i table, uint16_t* to,
                                             const Index& index) {
    const __m512i low = _mm512_set1_epi8(15);
    uint16_t steps[kKvLanes];
    steps_of(exponents, steps);
    __m512i rows[kKvRows], halves[2][4];
#pragma GCC unroll 8
    for (int row = 0; row < kKvRows; ++row) {
      const __m512i both = load(from + 64 * (row & 3));
      rows[row] = index(_mm512_and_si512(row < 4 ? both : _mm512_srli_epi16(both, 4), low), row);
    }
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      const __m512i* of = rows + 4 * half;
      const __m512i a = _mm512_unpacklo_epi32(of[0], of[1]), b = _mm512_unpackhi_epi32(of[0], of[1]);
      const __m512i c = _mm512_unpacklo_epi32(of[2], of[3]), d = _mm512_unpackhi_epi32(of[2], of[3]);
      halves[half][0] = _mm512_unpacklo_epi64(a, c), halves[half][1] = _mm512_unpackhi_epi64(a, c);
      halves[half][2] = _mm512_unpacklo_epi64(b, d), halves[half][3] = _mm512_unpackhi_epi64(b, d);
    }
    const auto store = [&]<int lane>() __attribute__((always_inline)) {
      const __m512i words = widened<lane / 4>(halves[0][lane % 4], halves[1][lane % 4]);
      const __m512i values = _mm512_permutexvar_epi16(words, table),
                    step = _mm512_set1_epi16(static_cast<int16_t>(steps[lane]));
      _mm512_store_si512(to + lane * kKvGroup, _mm512_subs_epu16(values, step));
    };
    const auto each = [&]<int... lanes>(std::integer_sequence<int, lanes...>)
                          __attribute__((always_inline)) { (store.template operator()<lanes>(), ...); };
    each(std::make_integer_sequence<int, kKvLanes>());
  }
};

class VectorLanes {
 public:
  [[gnu::always_inline]] void zero() {
#pragma GCC unroll 16
    for (__m512& lane : of_) lane = _mm512_setzero_ps();
  }
  [[gnu::always_inline]] void load(const float* from) {
#pragma GCC unroll 16
    for (int i = 0; i < kKvLanes; ++i) of_[i] = _mm512_loadu_ps(from + i * kTileRows);
  }
  [[gnu::always_inline]] void store(float* to) const {
#pragma GCC unroll 16
    for (int i = 0; i < kKvLanes; ++i) _mm512_storeu_ps(to + i * kTileRows, of_[i]);
  }
  [[gnu::always_inline]] void add(const float* products) {
#pragma GCC unroll 16
    for (int i = 0; i < kKvLanes; ++i) of_[i] = _mm512_add_ps(of_[i], _mm512_load_ps(products + i * kTileRows));
  }
  [[gnu::always_inline]] void store_scaled(float* to, float factor, float* largest) const {
    const __m512 by = _mm512_set1_ps(factor);
    __m512 most = _mm512_mul_ps(of_[0], by);
#pragma GCC unroll 16
    for (int i = 0; i < kKvLanes; ++i) {
      const __m512 scaled = _mm512_mul_ps(of_[i], by);
      most = _mm512_max_ps(most, scaled);
      _mm512_storeu_ps(to + i * kTileRows, scaled);
    }
    if (largest) _mm512_storeu_ps(largest, _mm512_max_ps(most, _mm512_loadu_ps(largest)));
  }

 private:
  __m512 of_[kKvLanes];
};

using PromptUnit = Bf16Unit;
using PromptRows = VectorRows;
using PromptSums = VectorLanes;

}  // namespace
}  // namespace tilepress
