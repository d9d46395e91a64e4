// In a nameless namespace for the reason that pack_block.h gives.
#pragma once

#include "kernels/amx_unit.h"
#include "kernels/linear_f32_i8_int/finish_avx512.h"

namespace tilepress {
namespace {

// Operands of weights are signed, or unsigned and in steps of zero points.
template <bool in_steps>
struct Int8UnitOf : AmxUnit {
  template <int sum, int x, int weights>
  void add_product() {
    if constexpr (in_steps) {
      __asm__ volatile("tdpbsud %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(sum), "i"(x), "i"(weights));
    } else {
      __asm__ volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(sum), "i"(x), "i"(weights));
    }
  }

  // Whether zero points times sums of x, and sums of products with operands in their steps, are floats: all are below
  // 2^24, as is what is left of them, 256 * 255 * 256.
  static bool takes(const IntegerActivations& x) { return !in_steps || (x.bits <= 8 && x.segment <= 256); }

  // Scales for operands so many times too large, as only weights with half scales have them.
  template <int times>
  static __m512 scales_for(const SpanWeights& weights, int64_t group) {
    if constexpr (times == 1) {
      return load_sixteen_scales(weights, group);
    } else {
      return _mm512_mul_ps(load_half_scales(weights, group), _mm512_set1_ps(1.0f / times));
    }
  }

  // Those of a group, taken off a sum of products.
  class ZeroPoints {
   public:
    ZeroPoints(const SpanWeights& weights, int64_t group) : shift_(_mm_cvtsi32_si128(zero_shift(*weights.format))) {
      const int lower = lowered(*weights.format);
      of_ = _mm512_sub_epi32(raised_by(weights, group, lower), _mm512_set1_epi32(lower));
      floats_ = _mm512_cvtepi32_ps(of_);
    }

    [[gnu::always_inline]] __m512 taken_off(__m512i dot, int32_t sum) const {
      const __m512i sums = _mm512_set1_epi32(sum);
      if constexpr (in_steps) return _mm512_fnmadd_ps(floats_, _mm512_cvtepi32_ps(sums), _mm512_cvtepi32_ps(dot));
      return _mm512_cvtepi32_ps(_mm512_sub_epi32(_mm512_sll_epi32(dot, shift_), _mm512_mullo_epi32(of_, sums)));
    }

   private:
    __m128i shift_;
    __m512i of_;
    __m512 floats_;
  };

  template <int times, bool units, bool zeros>
  class Sums {
   public:
    // Rows past the last have dots of 0, and sums and units of anything.
    [[gnu::always_inline]] void add(const SpanWeights& weights, const IntegerActivations& x, int64_t index,
                                    int64_t group, int64_t row, const int32_t* dots) {
      const __m512 scales = scales_for<times>(weights, group);
      const float* unit = units ? x.units + row * x.segment_stride + index : nullptr;
      [[maybe_unused]] const int32_t* sum = x.sums + row * x.segment_stride + index;
      [[maybe_unused]] const ZeroPoints zero(weights, group);
#pragma GCC unroll 16
      for (int i = 0; i < kTileRows; ++i) {
        const __m512i dot = _mm512_load_si512(dots + i * kBlockNeurons);
        __m512 value;
        if constexpr (zeros) {
          value = zero.taken_off(dot, sum[i * x.segment_stride]);
        } else {
          value = _mm512_cvtepi32_ps(dot);
        }
        if constexpr (units) value = _mm512_mul_ps(value, _mm512_set1_ps(unit[i * x.segment_stride]));
        of_[i] = _mm512_fmadd_ps(value, scales, of_[i]);
      }
    }

    void add_to(float* out, int64_t rows) const {
#pragma GCC unroll 16
      for (int i = 0; i < kTileRows; ++i, out += kBlockNeurons) {
        if (i < rows) _mm512_storeu_ps(out, _mm512_add_ps(_mm512_loadu_ps(out), of_[i]));
      }
    }

   private:
    __m512 of_[kTileRows] = {};
  };

  template <int times>
  static void finish_rows(const SpanWeights& weights, const IntegerActivations& x, const Segment& segment, int64_t row,
                          int64_t rows, const int32_t* high, const int32_t* low, float* sums) {
    const __m512 scales = scales_for<times>(weights, segment.group);
    const ZeroPoints zeros(weights, segment.group);
    for (int64_t i = 0; i < rows; ++i, high += kBlockNeurons, sums += kBlockNeurons) {
      const int64_t at = (row + i) * x.segment_stride + segment.index;
      __m512i dot = _mm512_load_si512(high);
      if (low) dot = _mm512_add_epi32(_mm512_slli_epi32(dot, kDigitBits), _mm512_load_si512(low + i * kBlockNeurons));
      __m512 value = weights.zeros ? zeros.taken_off(dot, x.sums[at]) : _mm512_cvtepi32_ps(dot);
      if (x.units) value = _mm512_mul_ps(value, _mm512_set1_ps(x.units[at]));
      _mm512_store_ps(sums, _mm512_fmadd_ps(value, scales, _mm512_load_ps(sums)));
    }
  }
};

using Int8Unit = Int8UnitOf<false>;

}  // namespace
}  // namespace tilepress
