// In a nameless namespace for the reason that pack_block.h gives.
#pragma once

#include "kernels/amx_unit.h"
#include "kernels/linear_f32_i8_int/finish_avx512.h"

namespace tilepress {
namespace {

struct Int8Unit : AmxUnit {
  template <int sum, int x, int weights>
  void add_product() {
    __asm__ volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(sum), "i"(x), "i"(weights));
  }

  // Scales for operands so many times too large, as only weights with half scales have them.
  template <int times>
  static __m512 scales_for(const SpanWeights& weights, int64_t group) {
    if constexpr (times == 1) {
      return load_sixteen_scales(weights, group);
    } else {
      return _mm512_mul_ps(load_half_scales(weights, group), _mm512_set1_ps(1.0f / times));
    }
  }

  template <int times, bool units, bool zeros>
  class Sums {
   public:
    // Rows past the last have dots of 0.
    [[gnu::always_inline]] void add(const SpanWeights& weights, const IntegerActivations& x, int64_t index,
                                    int64_t group, int64_t row, const int32_t* dots) {
      const __m512 scales = scales_for<times>(weights, group);
      const float* unit = units ? x.units + row * x.segment_stride + index : nullptr;
      [[maybe_unused]] const int32_t* sum = x.sums + row * x.segment_stride + index;
      [[maybe_unused]] const int64_t last = x.batch - 1 - row;
      [[maybe_unused]] __m512i zero;
      if constexpr (zeros) {
        const int lower = lowered(*weights.format);
        zero = _mm512_sub_epi32(raised_by(weights, group, lower), _mm512_set1_epi32(lower));
      }
#pragma GCC unroll 16
      for (int i = 0; i < kTileRows; ++i) {
        __m512i dot = _mm512_load_si512(dots + i * kBlockNeurons);
        if constexpr (zeros) {
          const int32_t total = sum[least<int64_t>(i, last) * x.segment_stride];
          dot = _mm512_sub_epi32(in_zero_steps(weights, dot), _mm512_mullo_epi32(zero, _mm512_set1_epi32(total)));
        }
        __m512 value = _mm512_cvtepi32_ps(dot);
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
    const int lower = lowered(*weights.format);
    const __m512i zeros = _mm512_sub_epi32(raised_by(weights, segment.group, lower), _mm512_set1_epi32(lower));
    for (int64_t i = 0; i < rows; ++i, high += kBlockNeurons, sums += kBlockNeurons) {
      const int64_t at = (row + i) * x.segment_stride + segment.index;
      __m512i dot = _mm512_load_si512(high);
      if (low) dot = _mm512_add_epi32(_mm512_slli_epi32(dot, kDigitBits), _mm512_load_si512(low + i * kBlockNeurons));
      if (weights.zeros) {
        const __m512i less = _mm512_mullo_epi32(zeros, _mm512_set1_epi32(x.sums[at]));
        dot = _mm512_sub_epi32(in_zero_steps(weights, dot), less);
      }
      __m512 value = _mm512_cvtepi32_ps(dot);
      if (x.units) value = _mm512_mul_ps(value, _mm512_set1_ps(x.units[at]));
      _mm512_store_ps(sums, _mm512_fmadd_ps(value, scales, _mm512_load_ps(sums)));
    }
  }
};

}  // namespace
}  // namespace tilepress
