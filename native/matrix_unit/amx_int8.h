#pragma once

#include "linear/int8_epilogue_avx512.h"
#include "matrix_unit/amx.h"

namespace tilepress {
namespace {

struct Int8Unit : AmxUnit {
  template <int sum, int x, int weights>
  void add_product() {
    __asm__ volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(sum), "i"(x), "i"(weights));
  }

  // Scales for operands so many times too large, as only weights with half scales have them.
  template <int times>
  static __m512 scales_for(const KPanel& weights, int64_t group) {
    if constexpr (times == 1) {
      return load_sixteen_scales(weights, group);
    } else {
      return _mm512_mul_ps(load_half_scales(weights, group), _mm512_set1_ps(1.0f / times));
    }
  }

  // The zero points of a group, which operands of codes are too large by.
  static __m512i zero_points(const KPanel& weights, int64_t group) {
    const int lower = lowered(*weights.format);
    return _mm512_sub_epi32(raised_by(weights, group, lower), _mm512_set1_epi32(lower));
  }
  static __m512i take_off(const KPanel& weights, __m512i zeros, int32_t sum, __m512i dot) {
    return _mm512_sub_epi32(in_zero_steps(weights, dot), _mm512_mullo_epi32(zeros, _mm512_set1_epi32(sum)));
  }

  // Without `units` all are those of the weights.
  template <int times, bool units, bool zeros>
  class Sums {
   public:
    // Rows past the last have dots of 0, and sums and units of anything.
    [[gnu::always_inline]] void add(const KPanel& weights, const IntegerActivations& x, int64_t index, int64_t group,
                                    int64_t row, const int32_t* dots) {
      const __m512 scales = scales_for<times>(weights, group);
      const int64_t at = row * x.segment_stride + index;
      [[maybe_unused]] const float* unit = units ? x.units + at : nullptr;
      [[maybe_unused]] const int32_t* sum = x.sums + at;
      [[maybe_unused]] __m512i zero;
      if constexpr (zeros) zero = zero_points(weights, group);
#pragma GCC unroll 16
      for (int i = 0; i < kTileRows; ++i) {
        __m512i dot = _mm512_load_si512(dots + i * kBlockNeurons);
        if constexpr (zeros) dot = take_off(weights, zero, sum[i * x.segment_stride], dot);
        __m512 value = _mm512_cvtepi32_ps(dot);
        if constexpr (units) value = _mm512_mul_ps(value, _mm512_set1_ps(unit[i * x.segment_stride]));
        if constexpr (zeros && !units) value = _mm512_mul_ps(value, _mm512_set1_ps(weight_unit(*weights.format)));
        of_[i] = _mm512_fmadd_ps(value, scales, of_[i]);
      }
    }

    void add_to(float* out, int64_t rows) const {
#pragma GCC unroll 16
      for (int i = 0; i < kTileRows; ++i, out += kBlockNeurons) {
        if (i < rows) _mm512_storeu_ps(out, _mm512_add_ps(_mm512_loadu_ps(out), of_[i]));
      }
    }

   protected:
    __m512 of_[kTileRows] = {};
  };

  template <int times>
  static void finish_rows(const KPanel& weights, const IntegerActivations& x, const Segment& segment, int64_t row,
                          int64_t rows, const int32_t* high, const int32_t* low, float* sums) {
    const __m512 scales = scales_for<times>(weights, segment.group);
    const __m512i zeros = zero_points(weights, segment.group);
    for (int64_t i = 0; i < rows; ++i, high += kBlockNeurons, sums += kBlockNeurons) {
      const int64_t at = (row + i) * x.segment_stride + segment.index;
      __m512i dot = _mm512_load_si512(high);
      if (low) dot = _mm512_add_epi32(_mm512_slli_epi32(dot, kLimbBits), _mm512_load_si512(low + i * kBlockNeurons));
      if (weights.zeros) dot = take_off(weights, zeros, x.sums[at], dot);
      __m512 value = _mm512_cvtepi32_ps(dot);
      if (x.units) value = _mm512_mul_ps(value, _mm512_set1_ps(x.units[at]));
      _mm512_store_ps(sums, _mm512_fmadd_ps(value, scales, _mm512_load_ps(sums)));
    }
  }
};

// For unsigned operands in steps of zero points, of which 4-bit codes have sixteen. Zero points times sums of x, and
// sums of products, are floats then, being below 2^24, and so is what is left of them, 256 * 255 * 256: one fused
// multiplication takes them off. Units are powers of two, so that each may be multiplied by them first; what is one
// unit for all goes to the scales, of 16 bits.
struct SteppedUnit : Int8Unit {
  static bool takes(const KPanel& weights, const IntegerActivations& x) {
    const Format& format = *weights.format;
    return weights.zeros && format.bits == 4 && has_half_scales(format) && x.unit_sums && x.bits <= 8 &&
           x.segment <= 256;
  }

  template <int sum, int x, int weights>
  void add_product() {
    __asm__ volatile("tdpbsud %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(sum), "i"(x), "i"(weights));
  }

  template <int times, bool units, bool zeros>
  class Sums : public Int8Unit::Sums<times, units, false> {
   public:
    static constexpr float kSteps = 16;

    [[gnu::always_inline]] void add(const KPanel& weights, const IntegerActivations& x, int64_t index, int64_t group,
                                    int64_t row, const int32_t* dots) {
      __m512 scales = load_half_scales(weights, group), zero = _mm512_cvtepi32_ps(zero_points(weights, group));
      if constexpr (!units) {
        scales = _mm512_mul_ps(scales, _mm512_set1_ps(1.0f / kSteps));
        zero = _mm512_mul_ps(zero, _mm512_set1_ps(kSteps));
      }
      const int64_t at = row * x.segment_stride + index;
      [[maybe_unused]] const float* unit = units ? x.units + at : nullptr;
      const float* sum = x.unit_sums + at;
#pragma GCC unroll 16
      for (int i = 0; i < kTileRows; ++i) {
        __m512 value = _mm512_cvtepi32_ps(_mm512_load_si512(dots + i * kBlockNeurons));
        if constexpr (units) value = _mm512_mul_ps(value, _mm512_set1_ps(unit[i * x.segment_stride]));
        value = _mm512_fnmadd_ps(zero, _mm512_set1_ps(sum[i * x.segment_stride]), value);
        this->of_[i] = _mm512_fmadd_ps(value, scales, this->of_[i]);
      }
    }
  };
};

}  // namespace
}  // namespace tilepress
