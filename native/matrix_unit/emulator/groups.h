// Per-group accumulation on the emulator (linear/bf16_groups.h).
#pragma once

#include "linear/bf16_groups.h"
#include "matrix_unit/emulator/bf16.h"

namespace tilepress {
namespace {

template <int rows>
class GroupSums {
 public:
  explicit GroupSums(const float* from) { __builtin_memcpy(sums_, from, sizeof(sums_)); }
  void store(float* to) const { __builtin_memcpy(to, sums_, sizeof(sums_)); }

  void add(const float* products, const float* scales) {
    for (int i = 0; i < rows * kBlockNeurons; ++i) {
      sums_[i] = __builtin_fmaf(products[i], scales[i % kBlockNeurons], sums_[i]);
    }
  }

 private:
  float sums_[rows * kBlockNeurons];
};

// All scales of the K-panel as float32, in `scratch`.
inline const float* group_scales(const KPanel& weights, uint8_t* scratch) {
  auto* scales = reinterpret_cast<float*>(scratch);
  const KPanelGroups groups(weights);
  for (int64_t i = 0; i < groups.count * kBlockNeurons; ++i) {
    scales[i] = load_scale(weights.format->scale, weights.scales, groups.first * kBlockNeurons + i);
  }
  return scales;
}

}  // namespace
}  // namespace tilepress
