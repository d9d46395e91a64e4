// Reading scales, and the smaller and larger of two numbers.
#pragma once

#include <bit>
#include <limits>

#include "tilepress/convert.h"
#include "tilepress/linear.h"

namespace tilepress {
namespace {

// Not the standard library's: a copy of those compiled for one instruction set could end up serving another.
template <class Number>
constexpr Number least(Number a, Number b) {
  return b < a ? b : a;
}
template <class Number>
constexpr Number most(Number a, Number b) {
  return a < b ? b : a;
}

inline float load_scale(ScaleType type, const void* scales, int64_t index) {
  switch (type) {
    case ScaleType::e8m0: {
      const uint32_t code = static_cast<const uint8_t*>(scales)[index];
      if (code == 255) return std::numeric_limits<float>::quiet_NaN();
      return std::bit_cast<float>(code ? code << 23 : 1u << 22);
    }
    case ScaleType::bf16:
      return bf16_to_float(static_cast<const uint16_t*>(scales)[index]);
    case ScaleType::fp16:
      return fp16_to_float(static_cast<const uint16_t*>(scales)[index]);
    case ScaleType::fp32:
      return static_cast<const float*>(scales)[index];
    case ScaleType::none:
      break;
  }
  return 1.0f;
}

// The scales of a block from `at` on. The type is settled before the loop over neurons, which then is a few vector
// instructions.
inline void load_scales(ScaleType type, const void* scales, int64_t at, float* out) {
  const auto load_known = [&](ScaleType known) __attribute__((always_inline)) {
    for (int neuron = 0; neuron < kBlockNeurons; ++neuron) out[neuron] = load_scale(known, scales, at + neuron);
  };
  switch (type) {
    case ScaleType::e8m0:
      return load_known(ScaleType::e8m0);
    case ScaleType::bf16:
      return load_known(ScaleType::bf16);
    case ScaleType::fp16:
      return load_known(ScaleType::fp16);
    case ScaleType::fp32:
      return load_known(ScaleType::fp32);
    case ScaleType::none:
      return load_known(ScaleType::none);
  }
}

}  // namespace
}  // namespace tilepress
