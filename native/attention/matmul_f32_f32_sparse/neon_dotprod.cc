#include <arm_neon.h>

#include "attention/matmul_f32_f32_sparse/multiply_units.h"
#include "attention/matmul_f32_f32_sparse/pair_shuffles.h"

namespace tilepress {
namespace {

// Four lanes at a time: all sums of four rows stay in registers.
struct NeonUnit {
  template <FloatType type, int rows>
  static const uint16_t* multiply(const OneUnit& unit, const float* factors, int64_t factor_stride, float* out,
                                  int64_t stride) {
    constexpr int kPieces = kSparseLanes / 4;
    float32x4_t sums[rows][kPieces];
    for (int row = 0; row < rows; ++row) {
      for (int piece = 0; piece < kPieces; ++piece) sums[row][piece] = vld1q_f32(out + row * stride + 4 * piece);
    }
    const uint16_t* next = unit.values;
    for (int64_t vector = 0; vector < unit.vectors; ++vector, factors += 2) {
      fetch(next, unit.ahead);
      const uint32_t mask = unit.masks[vector];
      float32x2_t by[rows];
      for (int row = 0; row < rows; ++row) by[row] = vld1_f32(factors + row * factor_stride);
#pragma GCC unroll 4
      for (int piece = 0; piece < kPieces; ++piece) {
        const PairShuffle& shuffle = kPairShuffles.of[mask >> (8 * piece) & 255];
        const uint8x16_t eight = vreinterpretq_u8_u16(vld1q_u16(next));
        const uint16x8_t pairs = vreinterpretq_u16_u8(vqtbl1q_u8(eight, vld1q_u8(shuffle.bytes)));
        next += shuffle.count;
        const float32x4_t first = low_floats<type>(pairs), second = high_floats<type>(pairs);
        for (int row = 0; row < rows; ++row) sums[row][piece] = vfmaq_lane_f32(sums[row][piece], first, by[row], 0);
        for (int row = 0; row < rows; ++row) sums[row][piece] = vfmaq_lane_f32(sums[row][piece], second, by[row], 1);
      }
    }
    for (int row = 0; row < rows; ++row) {
      for (int piece = 0; piece < kPieces; ++piece) vst1q_f32(out + row * stride + 4 * piece, sums[row][piece]);
    }
    return next;
  }

 private:
  template <FloatType type>
  static float32x4_t low_floats(uint16x8_t halves) {
    if constexpr (type == FloatType::f16) return vcvt_f32_f16(vreinterpret_f16_u16(vget_low_u16(halves)));
    return vreinterpretq_f32_u16(vzip1q_u16(vdupq_n_u16(0), halves));
  }

  template <FloatType type>
  static float32x4_t high_floats(uint16x8_t halves) {
    if constexpr (type == FloatType::f16) return vcvt_high_f32_f16(vreinterpretq_f16_u16(halves));
    return vreinterpretq_f32_u16(vzip2q_u16(vdupq_n_u16(0), halves));
  }
};

void matmul_f32_f32_sparse(const SparseUnits& units, const SparseFactors& by, float* out, int64_t stride) {
  multiply_units<NeonUnit>(units, by, out, stride);
}

TILEPRESS_KERNEL(matmul_f32_f32_sparse);

}  // namespace
}  // namespace tilepress
