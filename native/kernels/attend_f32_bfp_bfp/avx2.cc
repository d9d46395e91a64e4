#include <immintrin.h>

#include "kernels/attend_f32_bfp_bfp/attend_block.h"

namespace tilepress {
namespace {

// Eight lanes at a time, by products of unsigned with signed bytes; two of them fit 16 bits, since codes have five.
struct Avx2Unit {
  static void lane_units(const uint8_t* exponents, bool wide, float* units) {
    tilepress::lane_units(exponents, wide, units);
  }

  // Keys are raised by 16, for which the queries' sums make up.
  template <int rows>
  static void score(const KvBlock& unit, const float* units, const KvQueries& q, float* scores) {
    for (int half = 0; half < 2; ++half) {
      __m256i sums[rows];
      for (int row = 0; row < rows; ++row) sums[row] = _mm256_setzero_si256();
      const __m256i signs = load(unit.codes + 256 + 32 * half);
      for (int r = 0; r < kKvRows; ++r) {
        const __m256i positive = _mm256_andnot_si256(negative(signs, r), _mm256_set1_epi8(16));
        multiply<rows>(_mm256_or_si256(nibbles_of(unit.codes + 32 * half, r), positive), q, r, sums);
      }
      for (int row = 0; row < rows; ++row) {
        sums[row] = _mm256_sub_epi32(sums[row], _mm256_set1_epi32(16 * q.sums[row]));
      }
      if (unit.lows) {
        for (int row = 0; row < rows; ++row) sums[row] = _mm256_slli_epi32(sums[row], 4);
        for (int r = 0; r < kKvRows; ++r) {
          multiply<rows>(nibbles_of(unit.lows + 32 * half, r), q, r, sums);
        }
      }
      for (int row = 0; row < rows; ++row) {
        add(sums[row], units + 8 * half, q.units[row], scores + row * kKvSegment + 8 * half);
      }
    }
  }

  template <int rows>
  static void mix(const KvBlock& unit, const float* units, const KvWeights& p, float* out) {
    for (int half = 0; half < 2; ++half) {
      __m256i sums[rows];
      for (int row = 0; row < rows; ++row) sums[row] = _mm256_setzero_si256();
      const __m256i signs = load(unit.codes + 256 + 32 * half);
      for (int r = 0; r < kKvRows; ++r) {
        const __m256i sixteen = _mm256_and_si256(negative(signs, r), _mm256_set1_epi8(16));
        const __m256i codes = _mm256_sub_epi8(nibbles_of(unit.codes + 32 * half, r), sixteen);
        for (int row = 0; row < rows; ++row) sums[row] = weighted(sums[row], p, row, r, codes);
      }
      if (unit.lows) {
        for (int row = 0; row < rows; ++row) sums[row] = _mm256_slli_epi32(sums[row], 4);
        for (int r = 0; r < kKvRows; ++r) {
          const __m256i codes = nibbles_of(unit.lows + 32 * half, r);
          for (int row = 0; row < rows; ++row) sums[row] = weighted(sums[row], p, row, r, codes);
        }
      }
      for (int row = 0; row < rows; ++row) {
        add(sums[row], units + 8 * half, p.units[row * kKvSegmentBlocks], out + row * kKvLanes + 8 * half);
      }
    }
  }

 private:
  static __m256i load(const uint8_t* from) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)); }

  static __m256i nibbles_of(const uint8_t* from, int r) {
    const __m256i both = load(from + 64 * (r & 3));
    return _mm256_and_si256(r < 4 ? both : _mm256_srli_epi16(both, 4), _mm256_set1_epi8(15));
  }

  static __m256i negative(__m256i signs, int r) {
    const __m256i place = _mm256_set1_epi8(static_cast<char>(1 << r));
    return _mm256_cmpeq_epi8(_mm256_and_si256(signs, place), place);
  }

  static __m256i four(const void* from) {
    int32_t bytes;
    __builtin_memcpy(&bytes, from, 4);
    return _mm256_set1_epi32(bytes);
  }

  // Sums of four products, those of unsigned bytes first.
  static __m256i dot(__m256i positive, __m256i codes) {
    return _mm256_madd_epi16(_mm256_maddubs_epi16(positive, codes), _mm256_set1_epi16(1));
  }

  template <int rows>
  static void multiply(__m256i codes, const KvQueries& q, int r, __m256i* sums) {
    for (int row = 0; row < rows; ++row) {
      const int8_t* at = q.digits + 64 * row + 4 * r;
      const __m256i high = _mm256_slli_epi32(dot(codes, four(at)), kDigitBits);
      sums[row] = _mm256_add_epi32(sums[row], _mm256_add_epi32(high, dot(codes, four(at + 32))));
    }
  }

  static __m256i weighted(__m256i sum, const KvWeights& p, int row, int r, __m256i codes) {
    return _mm256_add_epi32(sum, dot(four(p.values + row * kKvSegment + 4 * r), codes));
  }

  static void add(__m256i sums, const float* units, float unit, float* out) {
    const __m256 scale = _mm256_mul_ps(_mm256_loadu_ps(units), _mm256_set1_ps(unit));
    _mm256_storeu_ps(out, _mm256_fmadd_ps(_mm256_cvtepi32_ps(sums), scale, _mm256_loadu_ps(out)));
  }
};

}  // namespace

void avx2::kv_scores(const KvBlock& keys, int64_t channels, const KvQueries& queries, float scaling, float* scores) {
  score_block<Avx2Unit>(keys, channels, queries, scaling, scores);
}

void avx2::kv_mix(const KvBlock& values, int64_t channels, const KvWeights& weights, float* out) {
  mix_block<Avx2Unit>(values, channels, weights, out);
}

}  // namespace tilepress
