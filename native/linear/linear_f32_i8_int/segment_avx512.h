// Accumulators of a segment (vpdpbusd) and of a K-panel, for a few rows of activations.
#pragma once

#include "linear/int8_epilogue_avx512.h"
#include "simd/prefetch_avx512.h"

namespace tilepress {
namespace {

// Broadcasts four inputs to every neuron.
inline __m512i broadcast_inputs(const int8_t* x) {
  int32_t four;
  std::memcpy(&four, x, 4);
  return _mm512_set1_epi32(four);
}

// Addresses of several rows of activations.
template <int rows, int limbs>
struct RowAddresses {
  RowAddresses(const IntegerActivations& x, int64_t row) {
    for (int i = 0; i < rows; ++i) {
      for (int limb = 0; limb < limbs; ++limb) line[i][limb] = x.limbs[limb] + (row + i) * x.stride;
    }
  }

  const int8_t* line[rows][limbs];
};

// Accumulators of a segment; with few lines, several chains for each, to hide the latency of vpdpbusd.
template <int rows, int limbs>
struct Sums {
  static constexpr int kChains = rows * limbs == 1 ? 4 : rows * limbs <= 4 ? 2 : 1;
  __m512i sums[rows][limbs][kChains];

  void clear() {
    for (auto& row : sums) {
      for (auto& limb : row) {
        for (auto& sum : limb) sum = _mm512_setzero_si512();
      }
    }
  }

  // Adds one tile row of unsigned operands × four inputs of each row.
  [[gnu::always_inline]] void add(const RowAddresses<rows, limbs>& x, int64_t input, int tile_row, __m512i operands) {
    for (int i = 0; i < rows; ++i) {
      for (int limb = 0; limb < limbs; ++limb) {
        __m512i& sum = sums[i][limb][tile_row % kChains];
        sum = _mm512_dpbusd_epi32(sum, operands, broadcast_inputs(x.line[i][limb] + input + 4 * tile_row));
      }
    }
  }

  [[gnu::always_inline]] __m512i combine_limbs(int row, __m128i limb_bits) const {
    __m512i sum = of_limb(row, 0);
    for (int limb = 1; limb < limbs; ++limb) {
      sum = _mm512_add_epi32(_mm512_sll_epi32(sum, limb_bits), of_limb(row, limb));
    }
    return sum;
  }

 private:
  [[gnu::always_inline]] __m512i of_limb(int row, int limb) const {
    const auto& chains = sums[row][limb];
    if constexpr (kChains == 1) return chains[0];
    if constexpr (kChains == 2) return _mm512_add_epi32(chains[0], chains[1]);
    return _mm512_add_epi32(_mm512_add_epi32(chains[0], chains[1]), _mm512_add_epi32(chains[2], chains[3]));
  }
};

// Variants of the end of a segment. plain: segments of kShort inputs with 16-bit scales (int4:g32). powers: the same
// with E8M0 scales (mxfp4). scales: any scales. zeros: zero points and any scales.
enum class SegmentEnd { plain, powers, scales, zeros };
constexpr int kShort = 2 * kStepInputs;
constexpr bool is_short(SegmentEnd end) { return end == SegmentEnd::plain || end == SegmentEnd::powers; }

template <class Codes, class Work>
void with_segment_end(const KPanel& weights, const IntegerActivations& x, const Work& work) {
  const bool is_short = x.segment == kShort;
  if constexpr (Codes::kLookedUp) {
    const bool powers = is_short && weights.format->scale == ScaleType::e8m0;
    return powers ? work.template operator()<SegmentEnd::powers>() : work.template operator()<SegmentEnd::scales>();
  } else {
    if (weights.zeros) return work.template operator()<SegmentEnd::zeros>();
    const bool plain = is_short && has_half_scales(*weights.format);
    plain ? work.template operator()<SegmentEnd::plain>() : work.template operator()<SegmentEnd::scales>();
  }
}

// Calls work(input) for each step of a segment. Padding of the last step is within its tile.
template <SegmentEnd end, class Work>
[[gnu::always_inline]] inline void for_steps(const Segment& segment, const Work& work) {
  if constexpr (is_short(end)) {
    work(segment.begin);
    work(segment.begin + kStepInputs);
  } else {
    for (int64_t input = segment.begin; input < segment.end; input += kStepInputs) work(input);
  }
}

// Accumulators of a K-panel.
template <SegmentEnd end, int rows>
class Totals {
 public:
  Totals(const KPanel& weights, const IntegerActivations& x, int64_t row)
      : weights_(weights),
        sums_(x.sums + row * x.segment_stride),
        units_(x.units ? x.units + row * x.segment_stride : nullptr),
        stride_(x.segment_stride),
        limb_bits_(_mm_cvtsi32_si128(x.limb_bits)) {
    for (auto& total : totals_) total = _mm512_setzero_ps();
  }

  // 2^offset_bits was added to signed operands.
  template <class Sums>
  [[gnu::always_inline]] void add(const Segment& segment, int offset_bits, const Sums& sums) {
    const __m512 scales = end == SegmentEnd::plain    ? load_half_scales(weights_, segment.group)
                          : end == SegmentEnd::powers ? scales_of<ScaleType::e8m0>(weights_.scales, segment.group)
                                                      : load_sixteen_scales(weights_, segment.group);
    if constexpr (end == SegmentEnd::plain) {
      prefetch_near(static_cast<const uint16_t*>(weights_.scales) + segment.group * kBlockNeurons);
    }
    for (int i = 0; i < rows; ++i) {
      const int64_t at = i * stride_ + segment.index;
      const __m512i x_sum = _mm512_set1_epi32(sums_[at]);
      __m512i sum = sums.combine_limbs(i, limb_bits_);
      if constexpr (end == SegmentEnd::zeros) {
        const __m512i zeros = zeros_or(weights_, segment.group, 0);
        sum = _mm512_sub_epi32(in_zero_steps(weights_, sum), _mm512_mullo_epi32(zeros, x_sum));
      } else {
        sum = _mm512_sub_epi32(sum, _mm512_slli_epi32(x_sum, static_cast<unsigned>(offset_bits)));
      }
      __m512 value = _mm512_cvtepi32_ps(sum);
      if (units_) value = _mm512_mul_ps(value, _mm512_set1_ps(units_[at]));
      totals_[i] = _mm512_fmadd_ps(value, scales, totals_[i]);
    }
  }

  void add_to(float* out) const {
    for (int i = 0; i < rows; ++i) {
      float* at = out + i * kBlockNeurons;
      _mm512_storeu_ps(at, _mm512_add_ps(_mm512_loadu_ps(at), totals_[i]));
    }
  }

 private:
  const KPanel weights_;  // a copy: byte stores may alias it
  const int32_t* sums_;
  const float* units_;
  int64_t stride_;
  __m128i limb_bits_;
  __m512 totals_[rows];
};

}  // namespace
}  // namespace tilepress
