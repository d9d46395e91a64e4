#include <immintrin.h>

#include "kernels/attend_f32_bfp_bfp/attend_block.h"

namespace tilepress {
namespace {

// Eight lanes at a time, by products of unsigned with signed bytes. Codes have five bits, so that sums of eight
// products fit 16 bits: four of two each, added up before they are made wider.
struct Avx2Unit {
  // Keys are raised by 16, for which sums begin below 0.
  template <int rows>
  static void score(const KvBlock& first, int64_t groups, const KvQueries& queries, float scaling, float* scores) {
    for (int half = 0; half < 2; ++half) {
      __m256 totals[rows];
      for (int row = 0; row < rows; ++row) totals[row] = _mm256_setzero_ps();
      for (int64_t group = 0; group < groups; ++group) {
        const KvBlock unit = unit_of(first, group);
        prefetch(unit.codes + 160 * half, kKvUnitCodes / 2, unit.exponents, 2 * groups);
        add_group<rows>(unit, half, queries_from(queries, group), totals);
      }
      for (int row = 0; row < rows; ++row) {
        const __m256 scaled = _mm256_mul_ps(totals[row], _mm256_set1_ps(scaling));
        _mm256_storeu_ps(scores + row * kKvSegment + 8 * half, scaled);
      }
    }
  }

  template <int rows>
  static void mix(const KvBlock& first, int64_t units, const KvWeights& p, float* out, int64_t stride) {
    const auto bytes = [&](int row, int r) { return four(p.values + row * kKvSegment + 4 * r); };
    const auto product = [](__m256i codes, __m256i weights) { return _mm256_maddubs_epi16(weights, codes); };
    for (int64_t at = 0; at < units; ++at, out += stride) {
      const KvBlock unit = unit_of(first, at);
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
          const float of_row = p.units[row * kKvSegmentBlocks];
          _mm256_storeu_ps(to, added(_mm256_loadu_ps(to), sums[row], of_lanes + 8 * half, of_row));
        }
      }
    }
  }

 private:
  template <int rows>
  static void add_group(const KvBlock& unit, int half, const KvQueries& q, __m256* totals) {
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
      totals[row] = added(totals[row], _mm256_add_epi32(sums[row], thrice), of_lanes + 8 * half, q.units[row]);
    }
  }

  // sums += codes(r) · bytes(i, r) over all rows r of a unit, for each i
  template <int count, class Codes, class Bytes, class Product>
  static void dot(const Codes& codes, const Bytes& bytes, const Product& product, __m256i* sums) {
    for (int r = 0; r < kKvRows; r += 4) {
      const __m256i four_rows[4] = {codes(r), codes(r + 1), codes(r + 2), codes(r + 3)};
      for (int i = 0; i < count; ++i) {
        __m256i pairs = product(four_rows[0], bytes(i, r));
        for (int j = 1; j < 4; ++j) pairs = _mm256_add_epi16(pairs, product(four_rows[j], bytes(i, r + j)));
        sums[i] = _mm256_add_epi32(sums[i], _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
      }
    }
  }

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

  static __m256 added(__m256 total, __m256i sums, const float* units, float unit) {
    const __m256 scale = _mm256_mul_ps(_mm256_loadu_ps(units), _mm256_set1_ps(unit));
    return _mm256_fmadd_ps(_mm256_cvtepi32_ps(sums), scale, total);
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
