// int8 on AMX: the Units of int8_row_panels.h.
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

  // Scales ÷ factor, for operands that are `factor` factor too large. Only 16-bit scales have a factor other than 1.
  template <int factor>
  static __m512 scales_for(const KPanel& weights, int64_t group) {
    if constexpr (factor == 1) {
      return load_sixteen_scales(weights, group);
    } else {
      return _mm512_mul_ps(load_half_scales(weights, group), _mm512_set1_ps(1.0f / factor));
    }
  }

  // The zero points of a group, in the offset of its operands.
  static __m512i zero_points(const KPanel& weights, int64_t group) {
    const int offset = code_offset(*weights.format);
    return _mm512_sub_epi32(zeros_or(weights, group, offset), _mm512_set1_epi32(offset));
  }
  static __m512i subtract_zeros(const KPanel& weights, __m512i zeros, int32_t sum, __m512i dot) {
    return _mm512_sub_epi32(in_zero_steps(weights, dot), _mm512_mullo_epi32(zeros, _mm512_set1_epi32(sum)));
  }

  // Accumulators of one row panel. Without `units`, all are weight_unit(format).
  template <int factor, bool units, bool zeros>
  class Sums {
   public:
    // Rows past the last have dot products of 0; their sums and units may be anything.
    [[gnu::always_inline]] void add(const KPanel& weights, const IntegerActivations& x, int64_t index, int64_t group,
                                    int64_t row, const int32_t* dots) {
      const __m512 scales = scales_for<factor>(weights, group);
      const int64_t at = row * x.segment_stride + index;
      [[maybe_unused]] const float* unit = units ? x.units + at : nullptr;
      [[maybe_unused]] const int32_t* sum = x.sums + at;
      [[maybe_unused]] __m512i zero;
      if constexpr (zeros) zero = zero_points(weights, group);
#pragma GCC unroll 16
      for (int i = 0; i < kTileRows; ++i) {
        __m512i dot = _mm512_load_si512(dots + i * kBlockNeurons);
        if constexpr (zeros) dot = subtract_zeros(weights, zero, sum[i * x.segment_stride], dot);
        __m512 value = _mm512_cvtepi32_ps(dot);
        if constexpr (units) value = _mm512_mul_ps(value, _mm512_set1_ps(unit[i * x.segment_stride]));
        if constexpr (zeros && !units) value = _mm512_mul_ps(value, _mm512_set1_ps(weight_unit(*weights.format)));
        sums_[i] = _mm512_fmadd_ps(value, scales, sums_[i]);
      }
    }

    void add_to(float* out, int64_t rows) const {
#pragma GCC unroll 16
      for (int i = 0; i < kTileRows; ++i, out += kBlockNeurons) {
        if (i < rows) _mm512_storeu_ps(out, _mm512_add_ps(_mm512_loadu_ps(out), sums_[i]));
      }
    }

    void load(const float* from, int64_t rows) {
#pragma GCC unroll 16
      for (int i = 0; i < kTileRows; ++i, from += kBlockNeurons) {
        if (i < rows) sums_[i] = _mm512_loadu_ps(from);
      }
    }
    void store(float* to, int64_t rows) const {
#pragma GCC unroll 16
      for (int i = 0; i < kTileRows; ++i, to += kBlockNeurons) {
        if (i < rows) _mm512_storeu_ps(to, sums_[i]);
      }
    }

   protected:
    __m512 sums_[kTileRows] = {};
  };

  template <int factor>
  static void add_segment_rows(const KPanel& weights, const IntegerActivations& x, const Segment& segment, int64_t row,
                               int64_t rows, const int32_t* high, const int32_t* low, float* sums) {
    const __m512 scales = scales_for<factor>(weights, segment.group);
    const __m512i zeros = zero_points(weights, segment.group);
    for (int64_t i = 0; i < rows; ++i, high += kBlockNeurons, sums += kBlockNeurons) {
      const int64_t at = (row + i) * x.segment_stride + segment.index;
      __m512i dot = _mm512_load_si512(high);
      if (low) dot = _mm512_add_epi32(_mm512_slli_epi32(dot, kLimbBits), _mm512_load_si512(low + i * kBlockNeurons));
      if (weights.zeros) dot = subtract_zeros(weights, zeros, x.sums[at], dot);
      __m512 value = _mm512_cvtepi32_ps(dot);
      if (x.units) value = _mm512_mul_ps(value, _mm512_set1_ps(x.units[at]));
      _mm512_store_ps(sums, _mm512_fmadd_ps(value, scales, _mm512_load_ps(sums)));
    }
  }
};

// For unsigned 4-bit codes with zero points, which are in sixteenths of a code's step. Operands are codes, or code · 16
// if `shifted`. In those steps dot products, zero point · sum of x, and their difference are below 256 · 255 · 256 =
// 2^24, so float32 is exact: one fused multiply-subtract applies the zero points. Units are powers of two, so
// multiplying each term by them first is exact too, and so is a factor of 16 that zero points and scales share. A unit
// shared by all rows is applied to the scales, which have 16 bits.
template <bool shifted>
struct SteppedUnit : Int8Unit {
  static bool accepts(const KPanel& weights, const IntegerActivations& x) {
    const Format& format = *weights.format;
    return weights.zeros && format.bits == 4 && has_half_scales(format) && x.unit_sums && x.bits <= 8 &&
           x.segment <= 256;
  }

  template <int sum, int x, int weights>
  void add_product() {
    __asm__ volatile("tdpbsud %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(sum), "i"(x), "i"(weights));
  }

  template <int factor, bool units, bool zeros>
  class Sums : public Int8Unit::Sums<factor, units, false> {
   public:
    static constexpr float kShared = (shifted ? 1.0f : 16.0f) / (units ? 1.0f : 16.0f);

    [[gnu::always_inline]] void add(const KPanel& weights, const IntegerActivations& x, int64_t index, int64_t group,
                                    int64_t row, const int32_t* dots) {
      __m512 scales = load_half_scales(weights, group), zero = _mm512_cvtepi32_ps(zero_points(weights, group));
      if constexpr (kShared != 1) {
        scales = _mm512_mul_ps(scales, _mm512_set1_ps(kShared));
        zero = _mm512_mul_ps(zero, _mm512_set1_ps(1 / kShared));
      }
      const int64_t at = row * x.segment_stride + index;
      [[maybe_unused]] const float* unit = units ? x.units + at : nullptr;
      const float* sum = x.unit_sums + at;
#pragma GCC unroll 16
      for (int i = 0; i < kTileRows; ++i) {
        __m512 value = _mm512_cvtepi32_ps(_mm512_load_si512(dots + i * kBlockNeurons));
        if constexpr (units) value = _mm512_mul_ps(value, _mm512_set1_ps(unit[i * x.segment_stride]));
        value = _mm512_fnmadd_ps(zero, _mm512_set1_ps(sum[i * x.segment_stride]), value);
        this->sums_[i] = _mm512_fmadd_ps(value, scales, this->sums_[i]);
      }
    }
  };
};

}  // namespace
}  // namespace tilepress
