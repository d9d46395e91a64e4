#include "kernels/attend_f32_bfp_bfp/attend_block.h"
#include "kernels/attend_f32_bfp_bfp/lane_units_avx512.h"

namespace tilepress {
namespace {

// All sixteen lanes at a time, by products of unsigned with signed bytes.
struct Avx512Unit {
  // Keys are raised by 16, for which sums begin below 0.
  template <int rows>
  static void score(const KvBlock& first, int64_t groups, const KvQueries& queries, float scaling, float* scores) {
    __m512 totals[rows];
    for (int row = 0; row < rows; ++row) totals[row] = _mm512_setzero_ps();
    for (int64_t group = 0; group < groups; ++group) {
      const KvBlock unit = unit_of(first, group);
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
        totals[row] = added(totals[row], _mm512_add_epi32(sums[row], thrice), units, q.units[row]);
      }
    }
    for (int row = 0; row < rows; ++row) {
      _mm512_storeu_ps(scores + row * kKvSegment, _mm512_mul_ps(totals[row], _mm512_set1_ps(scaling)));
    }
  }

  template <int rows>
  static void mix(const KvBlock& first, int64_t units, const KvWeights& p, float* out, int64_t stride) {
    for (int64_t at = 0; at < units; ++at, out += stride) {
      const KvBlock unit = unit_of(first, at);
      prefetch(unit.codes, kKvUnitCodes, unit.exponents, units);
      __m512i sums[rows];
      for (int row = 0; row < rows; ++row) sums[row] = _mm512_setzero_si512();
      add_weighted<rows>(unit.codes, p, sums);
      if (unit.lows) {
        for (int row = 0; row < rows; ++row) sums[row] = _mm512_slli_epi32(sums[row], 4);
        for (int r = 0; r < kKvRows; ++r) weigh<rows>(nibbles_of(unit.lows, r), p, r, sums);
      }
      const __m512 of_lanes = lane_units(unit.exponents, unit.lows);
      for (int row = 0; row < rows; ++row) {
        float* to = out + row * kKvLanes;
        _mm512_storeu_ps(to, added(_mm512_loadu_ps(to), sums[row], of_lanes, p.units[row * kKvSegmentBlocks]));
      }
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

  template <int rows>
  static void add_weighted(const uint8_t* from, const KvWeights& p, __m512i* sums) {
    const __m512i signs = load(from + 256), sixteen = _mm512_set1_epi8(16);
    for (int r = 0; r < kKvRows; ++r) {
      const __m512i nibbles = nibbles_of(from, r);
      const __mmask64 negative = _mm512_test_epi8_mask(signs, _mm512_set1_epi8(static_cast<char>(1 << r)));
      weigh<rows>(_mm512_mask_sub_epi8(nibbles, negative, nibbles, sixteen), p, r, sums);
    }
  }

  static __m512i load(const uint8_t* from) { return _mm512_loadu_si512(from); }

  static __m512i nibbles_of(const uint8_t* from, int r) {
    const __m512i both = load(from + 64 * (r & 3));
    return _mm512_and_si512(r < 4 ? both : _mm512_srli_epi16(both, 4), _mm512_set1_epi8(15));
  }

  // Four bytes of a row, for every lane.
  static __m512i four(const void* from) {
    int32_t bytes;
    __builtin_memcpy(&bytes, from, 4);
    return _mm512_set1_epi32(bytes);
  }

  template <int vectors>
  static void multiply(__m512i codes, const KvQueries& q, int r, __m512i* sums) {
    for (int i = 0; i < vectors; ++i)
      sums[i] = _mm512_dpbusd_epi32(sums[i], codes, four(q.bytes + kKvGroup * i + 4 * r));
  }

  template <int rows>
  static void weigh(__m512i codes, const KvWeights& p, int r, __m512i* sums) {
    for (int row = 0; row < rows; ++row) {
      sums[row] = _mm512_dpbusd_epi32(sums[row], four(p.values + row * kKvSegment + 4 * r), codes);
    }
  }

  static __m512 added(__m512 total, __m512i sums, __m512 units, float unit) {
    return _mm512_fmadd_ps(_mm512_cvtepi32_ps(sums), _mm512_mul_ps(units, _mm512_set1_ps(unit)), total);
  }
};

}  // namespace

void avx512_vnni::kv_scores(const KvBlock& keys, int64_t channels, const KvQueries& queries, float scaling,
                            float* scores) {
  score_block<Avx512Unit>(keys, channels, queries, scaling, scores);
}

void avx512_vnni::kv_mix(const KvBlock& values, int64_t channels, const KvWeights& weights, float* out) {
  mix_block<Avx512Unit>(values, channels, weights, out);
}

}  // namespace tilepress
