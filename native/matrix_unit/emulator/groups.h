#pragma once

#include "linear/bf16_groups.h"
#include "matrix_unit/emulator/bf16.h"

namespace tilepress {
namespace {

template <int rows>
class PlainSums {
 public:
  explicit PlainSums(const float* from) { __builtin_memcpy(of_, from, sizeof(of_)); }
  void store(float* to) const { __builtin_memcpy(to, of_, sizeof(of_)); }

  void add(const float* products, const float* scales) {
    for (int i = 0; i < rows * kBlockNeurons; ++i) {
      of_[i] = __builtin_fmaf(products[i], scales[i % kBlockNeurons], of_[i]);
    }
  }

 private:
  float of_[rows * kBlockNeurons];
};

// The K-panel's scales as floats.
inline const float* group_scales(const KPanel& weights, uint8_t* scratch) {
  auto* scales = reinterpret_cast<float*>(scratch);
  const KPanelGroups groups(weights);
  for (int64_t i = 0; i < groups.count * kBlockNeurons; ++i) {
    scales[i] = load_scale(weights.format->scale, weights.scales, groups.first * kBlockNeurons + i);
  }
  return scales;
}

template <class Tiles, class Scales>
void multiply_groups(const GroupProduct& product, Tiles& tiles, Scales& scales) {
  GroupMultiplier<Bf16Unit, PlainSums, Tiles, Scales>(product, tiles, scales).run();
}

}  // namespace
}  // namespace tilepress
