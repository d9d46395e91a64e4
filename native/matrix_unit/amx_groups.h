#pragma once

#include "linear/bf16_groups.h"
#include "linear/bf16_rows_avx512.h"
#include "matrix_unit/amx_bf16.h"

namespace tilepress {
namespace {

template <int rows>
class VectorSums {
 public:
  [[gnu::always_inline]] explicit VectorSums(const float* from) {
#pragma GCC unroll 16
    for (int row = 0; row < rows; ++row) of_[row] = _mm512_loadu_ps(from + row * kBlockNeurons);
  }

  [[gnu::always_inline]] void store(float* to) const {
#pragma GCC unroll 16
    for (int row = 0; row < rows; ++row) _mm512_storeu_ps(to + row * kBlockNeurons, of_[row]);
  }

  [[gnu::always_inline]] void add(const float* products, const float* scales) {
    const __m512 by = _mm512_loadu_ps(scales);
#pragma GCC unroll 16
    for (int row = 0; row < rows; ++row) {
      of_[row] = _mm512_fmadd_ps(_mm512_load_ps(products + row * kBlockNeurons), by, of_[row]);
    }
  }

 private:
  __m512 of_[rows];
};

// The K-panel's scales as floats, all of them.
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

template <class Tiles, class Scales>
void multiply_groups(const GroupProduct& product, Tiles& tiles, Scales& scales) {
  GroupMultiplier<Bf16Unit, VectorSums, Tiles, Scales>(product, tiles, scales).run();
}

}  // namespace
}  // namespace tilepress
