#include "attention/bfp_lanes_avx512.h"

namespace tilepress {
namespace {

struct Avx512Mix : Avx512Lanes {
  template <int rows>
  static void mix(const ConstKvUnits& first, int64_t units, const KvWeights& p, float* out, int64_t stride) {
    for (int64_t at = 0; at < units; ++at, out += stride) {
      const ConstKvUnits unit = first.unit(at);
      prefetch(unit.codes, kKvUnitCodes, unit.exponents, units);
      __m512i sums[rows];
      for (int row = 0; row < rows; ++row) sums[row] = _mm512_setzero_si512();
      add_weighted<rows>(unit.codes, p, sums);
      if (unit.lows) {
        for (int row = 0; row < rows; ++row) sums[row] = _mm512_slli_epi32(sums[row], 4);
        for (int r = 0; r < kKvRows; ++r) multiply<rows>(nibbles_of(unit.lows, r), p, r, sums);
      }
      const __m512 of_lanes = lane_units(unit.exponents, unit.lows);
      for (int row = 0; row < rows; ++row) {
        float* to = out + row * kKvLanes;
        _mm512_storeu_ps(to, added(_mm512_loadu_ps(to), sums[row], of_lanes, p.units[row * kKvSegmentPages]));
      }
    }
  }

 private:
  template <int rows>
  static void add_weighted(const uint8_t* from, const KvWeights& p, __m512i* sums) {
    const __m512i signs = load(from + 256), sixteen = _mm512_set1_epi8(16);
    for (int r = 0; r < kKvRows; ++r) {
      const __m512i nibbles = nibbles_of(from, r);
      const __mmask64 negative = _mm512_test_epi8_mask(signs, _mm512_set1_epi8(static_cast<char>(1 << r)));
      multiply<rows>(_mm512_mask_sub_epi8(nibbles, negative, nibbles, sixteen), p, r, sums);
    }
  }

  template <int rows>
  static void multiply(__m512i codes, const KvWeights& p, int r, __m512i* sums) {
    for (int row = 0; row < rows; ++row) {
      sums[row] = _mm512_dpbusd_epi32(sums[row], four(p.values + row * kKvSegment + 4 * r), codes);
    }
  }
};

void mix_f32_u8_bfp(const ConstKvUnits& values, int64_t channels, const KvWeights& weights, float* out) {
  mix_page<Avx512Mix>(values, channels, weights, out);
}

TILEPRESS_KERNEL(mix_f32_u8_bfp);

}  // namespace
}  // namespace tilepress
