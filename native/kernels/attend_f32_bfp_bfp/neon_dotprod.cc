#include <arm_neon.h>

#include "kernels/attend_f32_bfp_bfp/attend_block.h"

namespace tilepress {
namespace {

// Integers up to 2^22 added to the bits of this number are added to it: a conversion by one subtraction, where the
// instruction for it takes the time of four.
constexpr float kAnchor = 0x1.8p23f;
constexpr float32x4_t kAnchors = {kAnchor, kAnchor, kAnchor, kAnchor};

// A load, where compilers would copy a register: what binds are the two pipes of vector instructions.
template <class Vector>
inline Vector fresh(const Vector& from) {
  Vector vector;
  asm volatile("ldr %q0, %1" : "=w"(vector) : "m"(from));
  return vector;
}

inline float32x4_t as_floats(int32x4_t sums) { return vsubq_f32(vreinterpretq_f32_s32(sums), vdupq_n_f32(kAnchor)); }
inline float32x4_t as_floats(uint32x4_t sums) { return as_floats(vreinterpretq_s32_u32(sums)); }

// What 1 stands for in each lane.
inline void lane_units_of(const KvBlock& unit, float* units) {
  const uint8x16_t nibbles = vcombine_u8(vld1_u8(unit.exponents), vld1_u8(unit.exponents));
  const int8x16_t shifts = vcombine_s8(vdup_n_s8(0), vdup_n_s8(-4));
  const uint8x16_t low = vandq_u8(vshlq_u8(nibbles, shifts), vdupq_n_u8(15));
  const uint8x16_t places = vreinterpretq_u8_u64(vdupq_n_u64(0x8040201008040201));
  const uint8x16_t high = vcombine_u8(vdup_n_u8(unit.exponents[8]), vdup_n_u8(unit.exponents[9]));
  const uint8x16_t field = vbslq_u8(vdupq_n_u8(16), vtstq_u8(high, places), low);
  const uint8x16_t bias = vdupq_n_u8(unit.lows ? 127 - 22 : 127 - 18);
  const uint8x16_t biased = vaddq_u8(vmaxq_u8(field, vdupq_n_u8(1)), bias);
  const uint16x8_t first = vshll_n_u8(vget_low_u8(biased), 7), second = vshll_high_n_u8(biased, 7),
                   zero = vdupq_n_u16(0);
  vst1q_u16(reinterpret_cast<uint16_t*>(units), vzip1q_u16(zero, first));
  vst1q_u16(reinterpret_cast<uint16_t*>(units + 4), vzip2q_u16(zero, first));
  vst1q_u16(reinterpret_cast<uint16_t*>(units + 8), vzip1q_u16(zero, second));
  vst1q_u16(reinterpret_cast<uint16_t*>(units + 12), vzip2q_u16(zero, second));
}

template <int count, int four>
inline void dot(int8x16_t codes, const int8x16_t* x, int32x4_t* sums) {
  for (int i = 0; i < count; ++i) sums[i] = vdotq_laneq_s32(sums[i], codes, x[i], four);
}
template <int count, int four>
inline void dot(uint8x16_t codes, const uint8x16_t* x, uint32x4_t* sums) {
  for (int i = 0; i < count; ++i) sums[i] = vdotq_laneq_u32(sums[i], codes, x[i], four);
}

// Four lanes at a time, a piece: eight vectors of a unit, multiplied with four bytes of each row.
template <class Work>
inline void four_times(const Work& work) {
  work.template operator()<0>();
  work.template operator()<1>();
  work.template operator()<2>();
  work.template operator()<3>();
}

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

// Codes raised by 16, so that they have no sign.
template <int count>
inline void add_raised(const uint8_t* from, const uint8x16_t* x, const uint8x16_t* y, uint32x4_t* sums) {
  const uint8x16_t signs = vld1q_u8(from + 256);
  four_times([&]<int i>() {
    const uint8x16_t nibbles = vld1q_u8(from + 64 * i);
    uint8x16_t shifted = signs;
    if constexpr (i > 0) shifted = vshrq_n_u8(signs, i);
    const uint8x16_t high = vbicq_u8(vdupq_n_u8(17), shifted), low = vshlq_n_u8(high, 4);
    dot<count, i>(vbslq_u8(vdupq_n_u8(15), nibbles, low), x, sums);
    dot<count, i>(vsriq_n_u8(high, nibbles, 4), y, sums);
  });
}

template <int count, class Bytes, class Sums>
inline void add_lows(const uint8_t* from, const Bytes* x, const Bytes* y, Sums* sums) {
  four_times([&]<int i>() {
    const uint8x16_t nibbles = vld1q_u8(from + 64 * i);
    dot<count, i>(std::bit_cast<Bytes>(vandq_u8(nibbles, vdupq_n_u8(15))), x, sums);
    dot<count, i>(std::bit_cast<Bytes>(vshrq_n_u8(nibbles, 4)), y, sums);
  });
}

// totals += terms * the unit of each row
template <int rows>
inline void add_rows(const float32x4_t* terms, float32x4_t units, float32x4_t* totals) {
  four_times([&]<int row>() {
    if constexpr (row < rows) totals[row] = vfmaq_laneq_f32(totals[row], terms[row], units, row);
  });
}

struct NeonUnit {
  template <int rows>
  static void score(const KvBlock& first, int64_t groups, const KvQueries& queries, float scaling, float* scores) {
    constexpr int64_t kPass = 8;  // groups whose units are kept
    for (int64_t at = 0; at < groups; at += kPass) {
      const int64_t count = least(kPass, groups - at);
      const bool is_last = at + count == groups;
      const KvBlock units = unit_of(first, at);
      const KvQueries q = queries_from(queries, at);
      const auto pass = units.lows ? score_pass<rows, true> : score_pass<rows, false>;
      pass(units, count, 2 * groups, q, at == 0, is_last ? scaling : 1.0f, scores);
    }
  }

  template <int rows>
  static void mix(const KvBlock& first, int64_t units, const KvWeights& p, float* out, int64_t stride) {
    first.lows ? mix_as<rows, true>(first, units, p, out, stride) : mix_as<rows, false>(first, units, p, out, stride);
  }

 private:
  static constexpr int kPieces = 4;

  template <int rows, bool wide>
  static void score_pass(const KvBlock& first, int64_t groups, int64_t of_block, const KvQueries& queries,
                         bool is_first, float scaling, float* scores) {
    float units[8 * kKvLanes];
    for (int64_t group = 0; group < groups; ++group) lane_units_of(unit_of(first, group), units + group * kKvLanes);
    const int64_t quarter = groups * kKvUnitCodes / kPieces;
    for (int piece = 0; piece < kPieces; ++piece, scores += 4) {
      prefetch(first.codes + piece * quarter, quarter, first.exponents, of_block);
      float32x4_t totals[rows];
      for (int row = 0; row < rows; ++row) {
        totals[row] = is_first ? vdupq_n_f32(0) : vld1q_f32(scores + row * kKvSegment);
      }
      const uint8_t *codes = first.codes + 16 * piece, *lows = wide ? first.lows + 16 * piece : nullptr;
      const float* of_lanes = units + 4 * piece;
      KvQueries q = queries;
      for (int64_t group = 0; group < groups; ++group) {
        add_group<rows, wide>(codes, lows, q, vld1q_f32(of_lanes), totals);
        codes += kKvUnitCodes;
        if constexpr (wide) lows += kKvUnitLows;
        of_lanes += kKvLanes;
        q = queries_from(q, 1);
      }
      for (int row = 0; row < rows; ++row) vst1q_f32(scores + row * kKvSegment, vmulq_n_f32(totals[row], scaling));
    }
  }

  template <int rows, bool wide>
  static void add_group(const uint8_t* codes, const uint8_t* lows, const KvQueries& q, float32x4_t units,
                        float32x4_t* totals) {
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
    add_rows<rows>(dots, vld1q_f32(q.units), totals);
  }

  // Weights are not negative, so that values are multiplied without signs, in one go. Products of a unit are all
  // computed before any is scaled: what waits for each other is far apart then.
  template <int rows, bool wide>
  static void mix_as(const KvBlock& first, int64_t count, const KvWeights& p, float* out, int64_t stride) {
    uint8x16_t x[rows], y[rows];
    uint32x4_t start[rows];  // which makes up for raising them
    float32x4_t of_rows = vdupq_n_f32(0);
    const uint32_t anchor = wide ? 0 : std::bit_cast<uint32_t>(kAnchor);
    for (int row = 0; row < rows; ++row) {
      x[row] = vld1q_u8(p.values + row * kKvSegment);
      y[row] = vld1q_u8(p.values + row * kKvSegment + 16);
      start[row] = vdupq_n_u32(anchor - static_cast<uint32_t>(16 * p.sums[row * kKvSegmentBlocks]));
      of_rows[row] = p.units[row * kKvSegmentBlocks];
    }
    for (int64_t at = 0; at < count; ++at, out += stride) {
      const KvBlock unit = unit_of(first, at);
      prefetch(unit.codes, kKvUnitCodes, unit.exponents, count);
      uint32x4_t products[kPieces][rows];
      for (int piece = 0; piece < kPieces; ++piece) {
        uint32x4_t sums[rows];
        for (int row = 0; row < rows; ++row) sums[row] = fresh(start[row]);
        add_raised<rows>(unit.codes + 16 * piece, x, y, sums);
        if constexpr (wide) {
          const uint32x4_t anchors = vreinterpretq_u32_f32(vdupq_n_f32(kAnchor));
          for (int row = 0; row < rows; ++row) sums[row] = vaddq_u32(vshlq_n_u32(sums[row], 4), anchors);
          add_lows<rows>(unit.lows + 16 * piece, x, y, sums);
        }
        for (int row = 0; row < rows; ++row) products[piece][row] = sums[row];
      }
      add_products<rows>(unit, products, of_rows, out);
    }
  }

  template <int rows>
  static void add_products(const KvBlock& unit, const uint32x4_t (*products)[rows], float32x4_t of_rows, float* out) {
    float units[kKvLanes];
    lane_units_of(unit, units);
    for (int piece = 0; piece < kPieces; ++piece, out += 4) {
      const float32x4_t of_lanes = vld1q_f32(units + 4 * piece);
      float32x4_t dots[rows], totals[rows];
      for (int row = 0; row < rows; ++row) dots[row] = vmulq_f32(as_floats(products[piece][row]), of_lanes);
      for (int row = 0; row < rows; ++row) totals[row] = vld1q_f32(out + row * kKvLanes);
      add_rows<rows>(dots, of_rows, totals);
      for (int row = 0; row < rows; ++row) vst1q_f32(out + row * kKvLanes, totals[row]);
    }
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
