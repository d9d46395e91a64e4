#include "attention/bfp_lanes_neon.h"

namespace tilepress {
namespace {

template <int count>
inline void add_signed(const uint8_t* from, const int8x16_t* x, const int8x16_t* y, int32x4_t* sums) {
  const uint8x16_t signs = vld1q_u8(from + 256);
  four_times([&]<int i>() {
    const uint8x16_t nibbles = vld1q_u8(from + 64 * i);
    const uint8x16_t low = vtstq_u8(signs, vdupq_n_u8(1 << i)), high = vtstq_u8(signs, vdupq_n_u8(16 << i));
    dot<count, i>(vreinterpretq_s8_u8(vbslq_u8(vdupq_n_u8(15), nibbles, low)), x, sums);
    dot<count, i>(vreinterpretq_s8_u8(vsriq_n_u8(high, nibbles, 4)), y, sums);
  });
}

struct NeonScore {
  template <int rows>
  static void score(const ConstKvUnits& first, int64_t groups, const KvQueries& queries, float scaling, float* scores) {
    constexpr int64_t kPass = 8;  // groups whose lane units are decoded at once
    for (int64_t at = 0; at < groups; at += kPass) {
      const int64_t count = least(kPass, groups - at);
      const bool is_last = at + count == groups;
      const ConstKvUnits units = first.unit(at);
      const KvQueries q = queries_from(queries, at);
      const auto pass = units.lows ? score_pass<rows, true> : score_pass<rows, false>;
      pass(units, count, 2 * groups, q, at == 0, is_last ? scaling : 1.0f, scores);
    }
  }

 private:
  template <int rows, bool wide>
  static void score_pass(const ConstKvUnits& first, int64_t groups, int64_t page_units, const KvQueries& queries,
                         bool is_first, float scaling, float* scores) {
    float units[8 * kKvLanes];
    for (int64_t group = 0; group < groups; ++group) lane_units_of(first.unit(group), units + group * kKvLanes);
    const int64_t quarter = groups * kKvUnitCodes / kPieces;
    for (int piece = 0; piece < kPieces; ++piece, scores += 4) {
      prefetch(first.codes + piece * quarter, quarter, first.exponents, page_units);
      float32x4_t accumulators[rows];
      for (int row = 0; row < rows; ++row) {
        accumulators[row] = is_first ? vdupq_n_f32(0) : vld1q_f32(scores + row * kKvSegment);
      }
      const uint8_t *codes = first.codes + 16 * piece, *lows = wide ? first.lows + 16 * piece : nullptr;
      const float* of_lanes = units + 4 * piece;
      KvQueries q = queries;
      for (int64_t group = 0; group < groups; ++group) {
        add_group<rows, wide>(codes, lows, q, vld1q_f32(of_lanes), accumulators);
        codes += kKvUnitCodes;
        if constexpr (wide) lows += kKvUnitLows;
        of_lanes += kKvLanes;
        q = queries_from(q, 1);
      }
      for (int row = 0; row < rows; ++row)
        vst1q_f32(scores + row * kKvSegment, vmulq_n_f32(accumulators[row], scaling));
    }
  }

  template <int rows, bool wide>
  static void add_group(const uint8_t* codes, const uint8_t* lows, const KvQueries& q, float32x4_t units,
                        float32x4_t* accumulators) {
    int8x16_t x[rows + 1], y[rows + 1];
    int32x4_t sums[rows + 1];
    float32x4_t dots[rows + 1];
    for (int i = 0; i <= rows; ++i) sums[i] = vreinterpretq_s32_f32(fresh(kAnchors));
    for (int i = 0; i <= rows; ++i) x[i] = vld1q_s8(q.bytes + kKvGroup * i);
    for (int i = 0; i <= rows; ++i) y[i] = vld1q_s8(q.bytes + kKvGroup * i + 16);
    add_signed<rows + 1>(codes, x, y, sums);
    for (int i = 0; i <= rows; ++i) dots[i] = as_floats(sums[i]);
    if constexpr (wide) {
      for (int i = 0; i <= rows; ++i) sums[i] = vreinterpretq_s32_f32(fresh(kAnchors));
      add_lows<rows + 1>(lows, x, y, sums);
      for (int i = 0; i <= rows; ++i) dots[i] = vfmaq_n_f32(as_floats(sums[i]), dots[i], 16.0f);
    }
    for (int row = 0; row < rows; ++row) {
      dots[row] = vmulq_f32(vfmaq_n_f32(dots[row], dots[row + 1], 3.0f), units);
    }
    add_rows<rows>(dots, vld1q_f32(q.units), accumulators);
  }
};

void score_f32_bfp_bfp(const ConstKvUnits& keys, int64_t channels, const KvQueries& queries, float scaling,
                       float* scores) {
  score_page<NeonScore>(keys, channels, queries, scaling, scores);
}

TILEPRESS_KERNEL(score_f32_bfp_bfp);

}  // namespace
}  // namespace tilepress
