// Per-group accumulation on AMX (linear/bf16_groups.h).
#pragma once

#include "linear/bf16_groups.h"
#include "linear/bf16_rows_avx512.h"
#include "matrix_unit/amx_bf16.h"

namespace tilepress {
namespace {

template <int rows>
class GroupSums {
 public:
  [[gnu::always_inline]] explicit GroupSums(const float* from) {
#pragma GCC unroll 16
    for (int row = 0; row < rows; ++row) sums_[row] = _mm512_loadu_ps(from + row * kBlockNeurons);
  }

  [[gnu::always_inline]] void store(float* to) const {
#pragma GCC unroll 16
    for (int row = 0; row < rows; ++row) _mm512_storeu_ps(to + row * kBlockNeurons, sums_[row]);
  }

  [[gnu::always_inline]] void add(const float* products, const float* scales) {
    const __m512 scale = _mm512_loadu_ps(scales);
#pragma GCC unroll 16
    for (int row = 0; row < rows; ++row) {
      sums_[row] = _mm512_fmadd_ps(_mm512_load_ps(products + row * kBlockNeurons), scale, sums_[row]);
    }
  }

 private:
  __m512 sums_[rows];
};

// All scales of the K-panel as float32, in `scratch`.
inline const float* group_scales(const KPanel& weights, uint8_t* scratch) {
  auto* scales = reinterpret_cast<float*>(scratch);
  const KPanelGroups groups(weights);
  with_scale_type(*weights.format, [&]<ScaleType type>() {
    for (int64_t i = 0; i < groups.count; ++i) {
      _mm512_storeu_ps(scales + i * kBlockNeurons, scales_of<type>(weights.scales, groups.first + i));
    }
  });
  return scales;
}

}  // namespace
}  // namespace tilepress
