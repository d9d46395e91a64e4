// The zero point of a group of weights.
#pragma once

#include "quantize/scales.h"

namespace tilepress {
namespace {

inline float zero_of(const Format& format, GroupScales scales, int64_t index) {
  return format.zero_point ? static_cast<float>(scales.zeros[index]) * zero_step(format) : 0.0f;
}

}  // namespace
}  // namespace tilepress
