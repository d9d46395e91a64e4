#include <immintrin.h>

#include "attention/matmul_f32_f32_sparse/multiply_units.h"

namespace tilepress {
namespace {

// Source of each byte when pairs are split: first halves, then second halves.
struct Apart {
  uint8_t bytes[64];
};

constexpr Apart make_apart() {
  Apart order = {};
  for (int i = 0; i < 64; ++i) {
    const int half = i / 2, pair = half % kSparseLanes, second = half / kSparseLanes;
    order.bytes[i] = static_cast<uint8_t>(4 * pair + 2 * second + i % 2);
  }
  return order;
}

constexpr Apart kApart = make_apart();

// Sixteen lanes at a time: a vector's stored values are expanded by its mask; later values in the register are ignored.
struct Avx512Unit {
  template <FloatType type, int rows>
  static const uint16_t* multiply(const OneUnit& unit, const float* factors, int64_t factor_stride, float* out,
                                  int64_t stride) {
    __m512 first[rows], second[rows];
    for (int row = 0; row < rows; ++row) {
      first[row] = _mm512_loadu_ps(out + row * stride);
      second[row] = _mm512_setzero_ps();
    }
    const uint16_t* next = unit.values;
    for (int64_t vector = 0; vector < unit.vectors; ++vector, factors += 2) {
      fetch(next, unit.ahead);
      const uint32_t mask = unit.masks[vector];
      const __m512i pairs = _mm512_maskz_expand_epi16(mask, _mm512_loadu_si512(next));
      next += _mm_popcnt_u32(mask);
      __m512 evens, odds;
      split<type>(pairs, evens, odds);
      for (int row = 0; row < rows; ++row) {
        const float* by = factors + row * factor_stride;
        first[row] = _mm512_fmadd_ps(evens, _mm512_set1_ps(by[0]), first[row]);
        second[row] = _mm512_fmadd_ps(odds, _mm512_set1_ps(by[1]), second[row]);
      }
    }
    for (int row = 0; row < rows; ++row) _mm512_storeu_ps(out + row * stride, _mm512_add_ps(first[row], second[row]));
    return next;
  }

 private:
  // The first and the second half of each lane as floats.
  template <FloatType type>
  static void split(__m512i pairs, __m512& evens, __m512& odds) {
    if constexpr (type == FloatType::bf16) {
      evens = _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16));
      odds = _mm512_castsi512_ps(_mm512_and_si512(pairs, _mm512_set1_epi32(static_cast<int>(0xffff0000))));
    } else {
      const __m512i apart = _mm512_permutexvar_epi8(_mm512_loadu_si512(kApart.bytes), pairs);
      evens = _mm512_cvtph_ps(_mm512_castsi512_si256(apart));
      odds = _mm512_cvtph_ps(_mm512_extracti64x4_epi64(apart, 1));
    }
  }
};

void matmul_f32_f32_sparse(const SparseUnits& units, const SparseFactors& by, float* out, int64_t stride) {
  multiply_units<Avx512Unit>(units, by, out, stride);
}

TILEPRESS_KERNEL(matmul_f32_f32_sparse);

}  // namespace
}  // namespace tilepress
