#include <immintrin.h>

#include "attention/matmul_f32_f32_sparse/multiply_units.h"
#include "attention/matmul_f32_f32_sparse/pair_shuffles.h"

namespace tilepress {
namespace {

// Eight lanes at a time, by two shuffles.
struct Avx2Unit {
  template <FloatType type, int rows>
  static const uint16_t* multiply(const OneUnit& unit, const float* factors, int64_t factor_stride, float* out,
                                  int64_t stride) {
    __m256 sums[rows][2];
    for (int row = 0; row < rows; ++row) {
      for (int half = 0; half < 2; ++half) sums[row][half] = _mm256_loadu_ps(out + row * stride + 8 * half);
    }
    const uint16_t* next = unit.values;
    for (int64_t vector = 0; vector < unit.vectors; ++vector, factors += 2) {
      fetch(next, unit.ahead);
      const uint32_t mask = unit.masks[vector];
#pragma GCC unroll 2
      for (int half = 0; half < 2; ++half) {
        const __m128i low = four_lanes(next, mask >> (16 * half) & 255);
        const __m128i high = four_lanes(next, mask >> (16 * half + 8) & 255);
        const __m256 first = floats<type>(_mm_unpacklo_epi64(low, high));
        const __m256 second = floats<type>(_mm_unpackhi_epi64(low, high));
        for (int row = 0; row < rows; ++row) {
          const float* by = factors + row * factor_stride;
          sums[row][half] = _mm256_fmadd_ps(first, _mm256_set1_ps(by[0]), sums[row][half]);
          sums[row][half] = _mm256_fmadd_ps(second, _mm256_set1_ps(by[1]), sums[row][half]);
        }
      }
    }
    for (int row = 0; row < rows; ++row) {
      for (int half = 0; half < 2; ++half) _mm256_storeu_ps(out + row * stride + 8 * half, sums[row][half]);
    }
    return next;
  }

 private:
  static __m128i four_lanes(const uint16_t*& next, uint32_t bits) {
    const PairShuffle& shuffle = kPairShuffles.of[bits];
    const __m128i eight = _mm_loadu_si128(reinterpret_cast<const __m128i*>(next));
    next += shuffle.count;
    return _mm_shuffle_epi8(eight, _mm_load_si128(reinterpret_cast<const __m128i*>(shuffle.bytes)));
  }

  template <FloatType type>
  static __m256 floats(__m128i halves) {
    if constexpr (type == FloatType::f16) return _mm256_cvtph_ps(halves);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
  }
};

void matmul_f32_f32_sparse(const SparseUnits& units, const SparseFactors& by, float* out, int64_t stride) {
  multiply_units<Avx2Unit>(units, by, out, stride);
}

TILEPRESS_KERNEL(matmul_f32_f32_sparse);

}  // namespace
}  // namespace tilepress
