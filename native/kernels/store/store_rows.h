// A block's sums as the results of a layer: for sixteen neurons at once, as a compiler makes of it. In a nameless
// namespace for the reason that pack_block.h gives.
#pragma once

#include <cstring>

#include "kernels/all.h"
#include "tilepress/convert.h"

namespace tilepress {
namespace {

template <class Number, class Convert>
[[gnu::always_inline]] inline void store_as(const BlockResults& results, const Convert& convert) {
  const float* totals = results.totals;
  uint8_t* y = results.y;
  for (int64_t row = 0; row < results.rows; ++row, totals += kBlockNeurons, y += results.stride) {
    const float scale = results.scales ? results.scales[row] : 1.0f;
    Number values[kBlockNeurons];
    for (int i = 0; i < kBlockNeurons; ++i) {
      const float product = totals[i] * scale;
      values[i] = convert(results.bias ? product + results.bias[i] : product);
    }
    if (results.neurons == kBlockNeurons) {
      std::memcpy(y, values, sizeof values);
    } else {
      std::memcpy(y, values, static_cast<size_t>(results.neurons) * sizeof(Number));
    }
  }
}

inline void store_rows(const BlockResults& results) {
  switch (results.type) {
    case Real::f32:
      return store_as<float>(results, [](float x) { return x; });
    case Real::bf16:
      return store_as<uint16_t>(results, round_to_bf16);
    case Real::f16:
      return store_as<uint16_t>(results, round_to_fp16);
  }
}

}  // namespace
}  // namespace tilepress
