#include "attention/bfp_lanes_avx2.h"

namespace tilepress {
namespace {

struct Avx2Mix : Avx2Lanes {
  template <int rows>
  static void mix(const ConstKvUnits& first, int64_t units, const KvWeights& p, float* out, int64_t stride) {
    const auto bytes = [&](int row, int r) { return four(p.values + row * kKvSegment + 4 * r); };
    const auto product = [](__m256i codes, __m256i weights) { return _mm256_maddubs_epi16(weights, codes); };
    for (int64_t at = 0; at < units; ++at, out += stride) {
      const ConstKvUnits unit = first.unit(at);
      prefetch(unit.codes, kKvUnitCodes, unit.exponents, units);
      float of_lanes[kKvLanes];
      lane_units(unit.exponents, unit.lows != nullptr, of_lanes);
      for (int half = 0; half < 2; ++half) {
        __m256i sums[rows];
        for (int row = 0; row < rows; ++row) sums[row] = _mm256_setzero_si256();
        const __m256i signs = load(unit.codes + 256 + 32 * half);
        const auto codes = [&](int r) {
          const __m256i sixteen = _mm256_and_si256(negative(signs, r), _mm256_set1_epi8(16));
          return _mm256_sub_epi8(nibbles_of(unit.codes + 32 * half, r), sixteen);
        };
        dot<rows>(codes, bytes, product, sums);
        if (unit.lows) {
          for (int row = 0; row < rows; ++row) sums[row] = _mm256_slli_epi32(sums[row], 4);
          dot<rows>([&](int r) { return nibbles_of(unit.lows + 32 * half, r); }, bytes, product, sums);
        }
        for (int row = 0; row < rows; ++row) {
          float* to = out + row * kKvLanes + 8 * half;
          const float of_row = p.units[row * kKvSegmentPages];
          _mm256_storeu_ps(to, added(_mm256_loadu_ps(to), sums[row], of_lanes + 8 * half, of_row));
        }
      }
    }
  }
};

void mix_f32_u8_bfp(const ConstKvUnits& values, int64_t channels, const KvWeights& weights, float* out) {
  mix_page<Avx2Mix>(values, channels, weights, out);
}

TILEPRESS_KERNEL(mix_f32_u8_bfp);

}  // namespace
}  // namespace tilepress
