#include "attention/bfp_lanes_avx512.h"

namespace tilepress {
namespace {

struct Avx512Score : Avx512Lanes {
  // Codes are raised by 16 to be unsigned; sums start at -16 * the sum of queries.
  template <int rows>
  static void score(const ConstKvUnits& first, int64_t groups, const KvQueries& queries, float scaling, float* scores) {
    __m512 accumulators[rows];
    for (int row = 0; row < rows; ++row) accumulators[row] = _mm512_setzero_ps();
    for (int64_t group = 0; group < groups; ++group) {
      const ConstKvUnits unit = first.unit(group);
      const KvQueries q = queries_from(queries, group);
      prefetch(unit.codes, kKvUnitCodes, unit.exponents, 2 * groups);
      __m512i sums[rows + 1];
      for (int i = 0; i <= rows; ++i) sums[i] = _mm512_set1_epi32(-16 * q.sums[i]);
      add_raised<rows + 1>(unit.codes, q, sums);
      if (unit.lows) {
        for (int i = 0; i <= rows; ++i) sums[i] = _mm512_slli_epi32(sums[i], 4);
        for (int r = 0; r < kKvRows; ++r) multiply<rows + 1>(nibbles_of(unit.lows, r), q, r, sums);
      }
      const __m512 units = lane_units(unit.exponents, unit.lows);
      for (int row = 0; row < rows; ++row) {
        const __m512i thrice = _mm512_add_epi32(_mm512_slli_epi32(sums[row + 1], 1), sums[row + 1]);
        accumulators[row] = added(accumulators[row], _mm512_add_epi32(sums[row], thrice), units, q.units[row]);
      }
    }
    for (int row = 0; row < rows; ++row) {
      _mm512_storeu_ps(scores + row * kKvSegment, _mm512_mul_ps(accumulators[row], _mm512_set1_ps(scaling)));
    }
  }

 private:
  template <int vectors>
  static void add_raised(const uint8_t* codes, const KvQueries& q, __m512i* sums) {
    const __m512i signs = load(codes + 256), sixteen = _mm512_set1_epi8(16);
    for (int r = 0; r < kKvRows; ++r) {
      const __m512i nibbles = nibbles_of(codes, r);
      const __mmask64 positive = _mm512_testn_epi8_mask(signs, _mm512_set1_epi8(static_cast<char>(1 << r)));
      multiply<vectors>(_mm512_mask_add_epi8(nibbles, positive, nibbles, sixteen), q, r, sums);
    }
  }

  template <int vectors>
  static void multiply(__m512i codes, const KvQueries& q, int r, __m512i* sums) {
    for (int i = 0; i < vectors; ++i)
      sums[i] = _mm512_dpbusd_epi32(sums[i], codes, four(q.bytes + kKvGroup * i + 4 * r));
  }
};

void score_f32_bfp_bfp(const ConstKvUnits& keys, int64_t channels, const KvQueries& queries, float scaling,
                       float* scores) {
  score_page<Avx512Score>(keys, channels, queries, scaling, scores);
}

TILEPRESS_KERNEL(score_f32_bfp_bfp);

}  // namespace
}  // namespace tilepress
