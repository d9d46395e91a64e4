// Lines of integer activations, and their dot products with a segment of weights (sdot).
#pragma once

#include "linear/linear_f32_i8_int/neon_rows.h"

namespace tilepress {
namespace {

constexpr int64_t kFewLines = 4;  // above, expanding again for every few lines costs more than decoding to memory
constexpr int kAhead = 512;       // bytes to prefetch ahead; further than the hardware prefetcher

// Anchored sums: an integer sum starts at the bits of a float whose last place is 1 (or 1/16, or 16). Read as a float,
// it is that float plus the sum, and one subtraction converts it: cheaper than a conversion, which takes one of the two
// vector pipes for two cycles. For sums below 2^22.
template <int shift>
constexpr float kAnchor = shift > 0   ? kSumStart
                          : shift < 0 ? 0x1.8p27f
                                      : 0x1.8p23f;
template <int shift>
constexpr float kAnchors[4] = {kAnchor<shift>, kAnchor<shift>, kAnchor<shift>, kAnchor<shift>};
bool fits_anchor(const IntegerActivations& x) { return x.segment <= 128 && x.bits <= 9; }  // 255 * 128 * 128 < 2^22

// The lines of some rows of activations: one for each limb of each row, or five for four rows of nine bits.
template <int rows, int limbs>
struct Limbs {
  static constexpr int kRows = rows, kLines = rows * limbs, kLimbs = limbs;
  static const int8_t* line(const IntegerActivations& x, int64_t row, int index) {
    return x.limbs[index % limbs] + (row + index / limbs) * x.stride;
  }
};

struct NineBitLines {
  static constexpr int kRows = kNineBitRows, kLines = kNineBitLines, kLimbs = 1;
  static const int8_t* line(const IntegerActivations& x, int64_t row, int index) {
    return x.limbs[0] + (row / kRows * kLines + index) * x.stride;
  }
};

// Accumulators of a segment: each line × some quarters of a block.
//   kLoaded   starts are loaded, not copied: with several lines of dense weights, vector pipes are busier than loads
//   kInUnits  starts include the unit of the segment: one limb per row, and products 16 times too large
template <class Lines, int quarters, int shift, bool anchored, bool dense>
struct Sums {
  static constexpr int kQuarters = quarters;
  static constexpr bool kAnchored = anchored, kNineBitLines = std::is_same_v<Lines, NineBitLines>;
  static constexpr bool kLoaded = dense && Lines::kLines > 1;
  static constexpr bool kInUnits = kLoaded && anchored && shift == 4 && !kNineBitLines && Lines::kLimbs == 1;
  int32x4_t sums[Lines::kLines][quarters];
  const float* starts;
  int64_t start_stride;
  int32x4_t limb_bits;

  [[gnu::always_inline]] Sums(const IntegerActivations& x, int64_t row, int64_t segment)
      : starts(kInUnits ? x.starts + 4 * (row * x.segment_stride + segment) : kAnchors<shift>),
        start_stride(kInUnits ? 4 * x.segment_stride : 0),
        limb_bits(vdupq_n_s32(x.limb_bits)) {
    unrolled<Lines::kLines * quarters>([&]<int i>() __attribute__((always_inline)) {
      constexpr int kLine = i / quarters;
      constexpr bool kFromZero = !anchored || kLine % Lines::kLimbs != Lines::kLimbs - 1;
      sums[kLine][i % quarters] = kFromZero ? vdupq_n_s32(0)
                                  : kLoaded ? load_start<i>(start_of(kLine), segment)
                                            : vreinterpretq_s32_f32(vdupq_n_f32(kAnchor<shift>));
    });
  }

  const float* start_of(int line) const { return starts + line * start_stride; }

  template <int lane>
  [[gnu::always_inline]] void add(int quarter, int8x16_t operands, const int8x16_t (&x)[Lines::kLines]) {
    unrolled<Lines::kLines>([&]<int line>() __attribute__((always_inline)) {
      sums[line][quarter] = vdotq_laneq_s32(sums[line][quarter], operands, x[line], lane);
    });
  }

  [[gnu::always_inline]] int32x4_t combine_limbs(int row, int quarter) const {
    if constexpr (kNineBitLines) return vmlaq_n_s32(sums[row][quarter], sums[row + 1][quarter], kNineBitFactor);
    int32x4_t sum = sums[row * Lines::kLimbs][quarter];
    for (int limb = 1; limb < Lines::kLimbs; ++limb) {
      sum = vaddq_s32(sums[row * Lines::kLimbs + limb][quarter], vshlq_s32(sum, limb_bits));
    }
    return sum;
  }

  [[gnu::always_inline]] float32x4_t value(int row, int quarter) const {
    if constexpr (kInUnits) {
      return vsubq_f32(vreinterpretq_f32_s32(sums[row][quarter]), vld1q_f32(start_of(row)));
    } else if constexpr (kNineBitLines && anchored) {
      return vfmaq_n_f32(to_float(sums[row][quarter]), to_float(sums[row + 1][quarter]), kNineBitFactor);
    }
    return to_float(combine_limbs(row, quarter));
  }

  static float32x4_t to_float(int32x4_t dot) {
    if constexpr (anchored) return vsubq_f32(vreinterpretq_f32_s32(dot), vdupq_n_f32(kAnchor<shift>));
    if constexpr (shift > 0) return vcvtq_n_f32_s32(dot, shift);
    return vcvtq_f32_s32(dot);
  }
};

// 16 inputs of each line.
template <class Lines>
[[gnu::always_inline]] inline void load_x(const IntegerActivations& x, int64_t row, int64_t input,
                                          int8x16_t (&to)[Lines::kLines]) {
  for (int line = 0; line < Lines::kLines; ++line) to[line] = vld1q_s8(Lines::line(x, row, line) + input);
}

// Calls work<Lines, units>(row, out) for all rows, a few at a time, which share each load of weights. `floats`: the
// activations were floats, and have several limbs.
template <bool nine_bit_lines, bool floats, class Work>
void for_row_batches(const IntegerActivations& x, float* out, const Work& work) {
  int64_t row = 0;
  const auto run = [&]<class Lines, bool units>(int64_t end) {
    for (; row < end; row += Lines::kRows) {
      work.template operator()<Lines, units>(row, out + row * kBlockNeurons);
    }
  };
  const auto run_limbs = [&]<int limbs, bool units>() {
    constexpr int kMaxRows = 4 / limbs;
    run.template operator()<Limbs<kMaxRows, limbs>, units>(x.batch / kMaxRows * kMaxRows);
    run.template operator()<Limbs<1, limbs>, units>(x.batch);
  };
  if constexpr (nine_bit_lines) {
    if (x.nine_bit_lines) return run.template operator()<NineBitLines, true>(x.batch);
  }
  // Several limbs are always block floating point.
  if (x.limb_count == 3) return run_limbs.template operator()<3, true>();
  if (x.limb_count == 2) return run_limbs.template operator()<2, true>();
  if constexpr (!floats) {
    x.units ? run_limbs.template operator()<1, true>() : run_limbs.template operator()<1, false>();
  }
}

}  // namespace
}  // namespace tilepress
