#include <immintrin.h>

#include "kernels/attend_f32_bfp_bfp/attend_block.h"

namespace tilepress {
namespace {

// All sixteen lanes at a time, by products of unsigned with signed bytes.
struct Avx512Unit {
  static void lane_units(const uint8_t* exponents, bool wide, float* units) {
    const __m128i nibbles = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(exponents));
    const __m128i both = _mm_unpacklo_epi64(nibbles, _mm_srli_epi16(nibbles, 4));
    const __m512i low = _mm512_cvtepu8_epi32(_mm_and_si128(both, _mm_set1_epi8(15)));
    const auto high = static_cast<__mmask16>(exponents[8] | exponents[9] << 8);
    const __m512i field = _mm512_mask_add_epi32(low, high, low, _mm512_set1_epi32(16));
    const __m512i least = _mm512_max_epi32(field, _mm512_set1_epi32(1));
    const __m512i biased = _mm512_add_epi32(least, _mm512_set1_epi32(wide ? 127 - 22 : 127 - 18));
    _mm512_storeu_si512(units, _mm512_slli_epi32(biased, 23));
  }

  // Keys are raised by 16, for which the queries' sums make up.
  template <int rows>
  static void score(const KvBlock& unit, const float* units, const KvQueries& q, float* scores) {
    __m512i high[rows], low[rows];
    for (int row = 0; row < rows; ++row) high[row] = low[row] = _mm512_setzero_si512();
    const __m512i signs = load(unit.codes + 256), sixteen = _mm512_set1_epi8(16);
    for (int r = 0; r < kKvRows; ++r) {
      const __m512i nibbles = nibbles_of(unit.codes, r);
      const __mmask64 positive = _mm512_testn_epi8_mask(signs, _mm512_set1_epi8(static_cast<char>(1 << r)));
      multiply<rows>(_mm512_mask_add_epi8(nibbles, positive, nibbles, sixteen), q, r, high, low);
    }
    __m512i sums[rows];
    for (int row = 0; row < rows; ++row) {
      sums[row] = _mm512_sub_epi32(joined(high[row], low[row]), _mm512_set1_epi32(16 * q.sums[row]));
    }
    if (unit.lows) {
      for (int row = 0; row < rows; ++row) high[row] = low[row] = _mm512_setzero_si512();
      for (int r = 0; r < kKvRows; ++r) multiply<rows>(nibbles_of(unit.lows, r), q, r, high, low);
      for (int row = 0; row < rows; ++row) sums[row] = widened(sums[row], joined(high[row], low[row]));
    }
    for (int row = 0; row < rows; ++row) add(sums[row], units, q.units[row], scores + row * kKvSegment);
  }

  template <int rows>
  static void mix(const KvBlock& unit, const float* units, const KvWeights& p, float* out) {
    __m512i sums[rows];
    for (int row = 0; row < rows; ++row) sums[row] = _mm512_setzero_si512();
    const __m512i signs = load(unit.codes + 256), sixteen = _mm512_set1_epi8(16);
    for (int r = 0; r < kKvRows; ++r) {
      const __m512i nibbles = nibbles_of(unit.codes, r);
      const __mmask64 negative = _mm512_test_epi8_mask(signs, _mm512_set1_epi8(static_cast<char>(1 << r)));
      const __m512i codes = _mm512_mask_sub_epi8(nibbles, negative, nibbles, sixteen);
      for (int row = 0; row < rows; ++row) sums[row] = weighted(sums[row], p, row, r, codes);
    }
    if (unit.lows) {
      __m512i lows[rows];
      for (int row = 0; row < rows; ++row) lows[row] = _mm512_setzero_si512();
      for (int r = 0; r < kKvRows; ++r) {
        const __m512i codes = nibbles_of(unit.lows, r);
        for (int row = 0; row < rows; ++row) lows[row] = weighted(lows[row], p, row, r, codes);
      }
      for (int row = 0; row < rows; ++row) sums[row] = widened(sums[row], lows[row]);
    }
    for (int row = 0; row < rows; ++row) add(sums[row], units, p.units[row * kKvSegmentBlocks], out + row * kKvLanes);
  }

 private:
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

  template <int rows>
  static void multiply(__m512i codes, const KvQueries& q, int r, __m512i* high, __m512i* low) {
    for (int row = 0; row < rows; ++row) {
      const int8_t* at = q.digits + 64 * row + 4 * r;
      high[row] = _mm512_dpbusd_epi32(high[row], codes, four(at));
      low[row] = _mm512_dpbusd_epi32(low[row], codes, four(at + 32));
    }
  }

  static __m512i weighted(__m512i sum, const KvWeights& p, int row, int r, __m512i codes) {
    return _mm512_dpbusd_epi32(sum, four(p.values + row * kKvSegment + 4 * r), codes);
  }

  static __m512i joined(__m512i high, __m512i low) {
    return _mm512_add_epi32(_mm512_slli_epi32(high, kDigitBits), low);
  }
  static __m512i widened(__m512i sum, __m512i lows) { return _mm512_add_epi32(_mm512_slli_epi32(sum, 4), lows); }

  static void add(__m512i sums, const float* units, float unit, float* out) {
    const __m512 scale = _mm512_mul_ps(_mm512_loadu_ps(units), _mm512_set1_ps(unit));
    _mm512_storeu_ps(out, _mm512_fmadd_ps(_mm512_cvtepi32_ps(sums), scale, _mm512_loadu_ps(out)));
  }
};

}  // namespace

void avx512::kv_scores(const KvBlock& keys, int64_t channels, const KvQueries& queries, float scaling, float* scores) {
  score_block<Avx512Unit>(keys, channels, queries, scaling, scores);
}

void avx512::kv_mix(const KvBlock& values, int64_t channels, const KvWeights& weights, float* out) {
  mix_block<Avx512Unit>(values, channels, weights, out);
}

}  // namespace tilepress
