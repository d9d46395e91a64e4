#include "attention/bfp_lanes_avx2.h"

namespace tilepress {
namespace {

struct Avx2Score : Avx2Lanes {
  // Codes are raised by 16 to be unsigned; sums start at -16 * the sum of queries.
  template <int rows>
  static void score(const ConstKvUnits& first, int64_t groups, const KvQueries& queries, float scaling, float* scores) {
    for (int half = 0; half < 2; ++half) {
      __m256 accumulators[rows];
      for (int row = 0; row < rows; ++row) accumulators[row] = _mm256_setzero_ps();
      for (int64_t group = 0; group < groups; ++group) {
        const ConstKvUnits unit = first.unit(group);
        prefetch(unit.codes + 160 * half, kKvUnitCodes / 2, unit.exponents, 2 * groups);
        add_group<rows>(unit, half, queries_from(queries, group), accumulators);
      }
      for (int row = 0; row < rows; ++row) {
        const __m256 scaled = _mm256_mul_ps(accumulators[row], _mm256_set1_ps(scaling));
        _mm256_storeu_ps(scores + row * kKvSegment + 8 * half, scaled);
      }
    }
  }

 private:
  template <int rows>
  static void add_group(const ConstKvUnits& unit, int half, const KvQueries& q, __m256* accumulators) {
    __m256i sums[rows + 1];
    for (int i = 0; i <= rows; ++i) sums[i] = _mm256_set1_epi32(-16 * q.sums[i]);
    const __m256i signs = load(unit.codes + 256 + 32 * half);
    const auto raised = [&](int r) {
      const __m256i positive = _mm256_andnot_si256(negative(signs, r), _mm256_set1_epi8(16));
      return _mm256_or_si256(nibbles_of(unit.codes + 32 * half, r), positive);
    };
    const auto bytes = [&](int i, int r) { return four(q.bytes + kKvGroup * i + 4 * r); };
    const auto product = [](__m256i codes, __m256i x) { return _mm256_maddubs_epi16(codes, x); };
    dot<rows + 1>(raised, bytes, product, sums);
    if (unit.lows) {
      for (int i = 0; i <= rows; ++i) sums[i] = _mm256_slli_epi32(sums[i], 4);
      dot<rows + 1>([&](int r) { return nibbles_of(unit.lows + 32 * half, r); }, bytes, product, sums);
    }
    float of_lanes[kKvLanes];
    lane_units(unit.exponents, unit.lows != nullptr, of_lanes);
    for (int row = 0; row < rows; ++row) {
      const __m256i thrice = _mm256_add_epi32(_mm256_slli_epi32(sums[row + 1], 1), sums[row + 1]);
      accumulators[row] =
          added(accumulators[row], _mm256_add_epi32(sums[row], thrice), of_lanes + 8 * half, q.units[row]);
    }
  }
};

void score_f32_bfp_bfp(const ConstKvUnits& keys, int64_t channels, const KvQueries& queries, float scaling,
                       float* scores) {
  score_page<Avx2Score>(keys, channels, queries, scaling, scores);
}

TILEPRESS_KERNEL(score_f32_bfp_bfp);

}  // namespace
}  // namespace tilepress
