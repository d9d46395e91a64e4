// Reading scales, and the smaller and larger of two numbers; in a nameless namespace for the reason that pack_block.h
// gives.
#pragma once

#include <bit>
#include <limits>

#include "kernels/all.h"
#include "tilepress/convert.h"

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

}  // namespace
}  // namespace tilepress
