#include <arm_neon.h>

#include "kernels/attend_f32_bfp_bfp/attend_block.h"

namespace tilepress {
namespace {

// Four lanes at a time: eight vectors of a unit, multiplied with four bytes of a row each.
struct NeonUnit {
  static void lane_units(const uint8_t* exponents, bool wide, float* units) {
    const uint8x8_t nibbles = vld1_u8(exponents);
    const uint8x16_t low = vcombine_u8(vand_u8(nibbles, vdup_n_u8(15)), vshr_n_u8(nibbles, 4));
    const uint8x16_t places = vcombine_u8(vcreate_u8(0x8040201008040201), vcreate_u8(0x8040201008040201));
    const uint8x16_t high = vcombine_u8(vdup_n_u8(exponents[8]), vdup_n_u8(exponents[9]));
    const uint8x16_t field = vorrq_u8(low, vandq_u8(vtstq_u8(high, places), vdupq_n_u8(16)));
    const uint8x16_t biased = vaddq_u8(vmaxq_u8(field, vdupq_n_u8(1)), vdupq_n_u8(wide ? 127 - 22 : 127 - 18));
    const uint16x8_t first = vmovl_u8(vget_low_u8(biased)), second = vmovl_u8(vget_high_u8(biased));
    store(units, vmovl_u16(vget_low_u16(first)));
    store(units + 4, vmovl_u16(vget_high_u16(first)));
    store(units + 8, vmovl_u16(vget_low_u16(second)));
    store(units + 12, vmovl_u16(vget_high_u16(second)));
  }

  template <int rows>
  static void score(const KvBlock& unit, const float* units, const KvQueries& q, float* scores) {
    unit.lows ? score_as<rows, true>(unit, units, q, scores) : score_as<rows, false>(unit, units, q, scores);
  }
  template <int rows>
  static void mix(const KvBlock& unit, const float* units, const KvWeights& p, float* out) {
    unit.lows ? mix_as<rows, true>(unit, units, p, out) : mix_as<rows, false>(unit, units, p, out);
  }

 private:
  template <int rows, bool wide>
  static void score_as(const KvBlock& unit, const float* units, const KvQueries& q, float* scores) {
    for (int piece = 0; piece < 4; ++piece) {
      int8x16_t codes[kKvRows];
      int32x4_t sums[rows];
      unpack_signed(unit.codes + 16 * piece, codes);
      dot<rows>(codes, q, sums);
      if constexpr (wide) {
        int32x4_t lows[rows];
        unpack_lows(unit.lows + 16 * piece, codes);
        dot<rows>(codes, q, lows);
        for (int row = 0; row < rows; ++row) sums[row] = vaddq_s32(vshlq_n_s32(sums[row], 4), lows[row]);
      }
      for (int row = 0; row < rows; ++row) {
        add(sums[row], units + 4 * piece, q.units[row], scores + row * kKvSegment + 4 * piece);
      }
    }
  }

  // Weights are not negative, so that values are raised by 16 and multiplied without signs, in one go.
  template <int rows, bool wide>
  static void mix_as(const KvBlock& unit, const float* units, const KvWeights& p, float* out) {
    for (int piece = 0; piece < 4; ++piece) {
      uint8x16_t codes[kKvRows];
      int32x4_t sums[rows];
      unpack_raised(unit.codes + 16 * piece, codes);
      dot_weights<rows>(codes, p, sums);
      for (int row = 0; row < rows; ++row) {
        sums[row] = vsubq_s32(sums[row], vdupq_n_s32(16 * p.sums[row * kKvSegmentBlocks]));
      }
      if constexpr (wide) {
        int8x16_t nibbles[kKvRows];
        int32x4_t lows[rows];
        unpack_lows(unit.lows + 16 * piece, nibbles);
        for (int i = 0; i < kKvRows; ++i) codes[i] = vreinterpretq_u8_s8(nibbles[i]);
        dot_weights<rows>(codes, p, lows);
        for (int row = 0; row < rows; ++row) sums[row] = vaddq_s32(vshlq_n_s32(sums[row], 4), lows[row]);
      }
      for (int row = 0; row < rows; ++row) {
        add(sums[row], units + 4 * piece, p.units[row * kKvSegmentBlocks], out + row * kKvLanes + 4 * piece);
      }
    }
  }

  static void store(float* units, uint32x4_t exponents) {
    vst1q_f32(units, vreinterpretq_f32_u32(vshlq_n_u32(exponents, 23)));
  }

  static void unpack_signed(const uint8_t* from, int8x16_t* codes) {
    const uint8x16_t signs = vld1q_u8(from + 256), nibble = vdupq_n_u8(15);
    for (int i = 0; i < 4; ++i) {
      const uint8x16_t nibbles = vld1q_u8(from + 64 * i);
      const uint8x16_t first = vtstq_u8(signs, vdupq_n_u8(static_cast<uint8_t>(1 << i)));
      const uint8x16_t second = vtstq_u8(signs, vdupq_n_u8(static_cast<uint8_t>(16 << i)));
      codes[i] = vreinterpretq_s8_u8(vbslq_u8(nibble, nibbles, first));
      codes[i + 4] = vreinterpretq_s8_u8(vsriq_n_u8(second, nibbles, 4));
    }
  }

  static void unpack_raised(const uint8_t* from, uint8x16_t* codes) {
    const uint8x16_t signs = vld1q_u8(from + 256), nibble = vdupq_n_u8(15), sixteen = vdupq_n_u8(16);
    for (int i = 0; i < 4; ++i) {
      const uint8x16_t nibbles = vld1q_u8(from + 64 * i);
      const uint8x16_t first = vbicq_u8(sixteen, vtstq_u8(signs, vdupq_n_u8(static_cast<uint8_t>(1 << i))));
      const uint8x16_t second = vbicq_u8(sixteen, vtstq_u8(signs, vdupq_n_u8(static_cast<uint8_t>(16 << i))));
      codes[i] = vbslq_u8(nibble, nibbles, first);
      codes[i + 4] = vsriq_n_u8(second, nibbles, 4);
    }
  }

  static void unpack_lows(const uint8_t* from, int8x16_t* lows) {
    for (int i = 0; i < 4; ++i) {
      const uint8x16_t nibbles = vld1q_u8(from + 64 * i);
      lows[i] = vreinterpretq_s8_u8(vandq_u8(nibbles, vdupq_n_u8(15)));
      lows[i + 4] = vreinterpretq_s8_u8(vshrq_n_u8(nibbles, 4));
    }
  }

  // Sums of all rows side by side: additions to one of them wait for each other.
  template <int rows>
  static void dot(const int8x16_t* codes, const KvQueries& q, int32x4_t* sums) {
    int32x4_t high[rows], low[rows];
    for (int row = 0; row < rows; ++row) high[row] = low[row] = vdupq_n_s32(0);
    for (int half = 0; half < 2; ++half) {
      int8x16_t x[rows], y[rows];
      for (int row = 0; row < rows; ++row) x[row] = vld1q_s8(q.digits + 64 * row + 16 * half);
      for (int row = 0; row < rows; ++row) y[row] = vld1q_s8(q.digits + 64 * row + 32 + 16 * half);
      dot_four<rows, 0>(codes[4 * half], x, y, high, low);
      dot_four<rows, 1>(codes[4 * half + 1], x, y, high, low);
      dot_four<rows, 2>(codes[4 * half + 2], x, y, high, low);
      dot_four<rows, 3>(codes[4 * half + 3], x, y, high, low);
    }
    for (int row = 0; row < rows; ++row) sums[row] = vaddq_s32(vshlq_n_s32(high[row], kDigitBits), low[row]);
  }

  template <int rows, int four>
  static void dot_four(int8x16_t codes, const int8x16_t* x, const int8x16_t* y, int32x4_t* high, int32x4_t* low) {
    for (int row = 0; row < rows; ++row) high[row] = vdotq_laneq_s32(high[row], codes, x[row], four);
    for (int row = 0; row < rows; ++row) low[row] = vdotq_laneq_s32(low[row], codes, y[row], four);
  }

  template <int rows>
  static void dot_weights(const uint8x16_t* codes, const KvWeights& p, int32x4_t* sums) {
    uint32x4_t positive[rows];
    for (int row = 0; row < rows; ++row) positive[row] = vdupq_n_u32(0);
    for (int half = 0; half < 2; ++half) {
      uint8x16_t x[rows];
      for (int row = 0; row < rows; ++row) x[row] = vld1q_u8(p.values + row * kKvSegment + 16 * half);
      weigh_four<rows, 0>(codes[4 * half], x, positive);
      weigh_four<rows, 1>(codes[4 * half + 1], x, positive);
      weigh_four<rows, 2>(codes[4 * half + 2], x, positive);
      weigh_four<rows, 3>(codes[4 * half + 3], x, positive);
    }
    for (int row = 0; row < rows; ++row) sums[row] = vreinterpretq_s32_u32(positive[row]);
  }

  template <int rows, int four>
  static void weigh_four(uint8x16_t codes, const uint8x16_t* x, uint32x4_t* sums) {
    for (int row = 0; row < rows; ++row) sums[row] = vdotq_laneq_u32(sums[row], codes, x[row], four);
  }

  static void add(int32x4_t sums, const float* units, float unit, float* out) {
    const float32x4_t scale = vmulq_n_f32(vld1q_f32(units), unit);
    vst1q_f32(out, vfmaq_f32(vld1q_f32(out), vcvtq_f32_s32(sums), scale));
  }
};

}  // namespace

void neon_dotprod::kv_scores(const KvBlock& keys, int64_t channels, const KvQueries& queries, float scaling,
                             float* scores) {
  score_block<NeonUnit>(keys, channels, queries, scaling, scores);
}

void neon_dotprod::kv_mix(const KvBlock& values, int64_t channels, const KvWeights& weights, float* out) {
  mix_block<NeonUnit>(values, channels, weights, out);
}

}  // namespace tilepress
