// x / (1 + e^-x). In a nameless namespace for the reason that pack_block.h gives.
#pragma once

#include "kernels/exponential.h"

namespace tilepress {
namespace {

inline void silu_lanes(float* values, int64_t count) {
  const auto silu = [](Floats x) { return x / (exponential(-x) + 1.0f); };
  int64_t at = 0;
  for (; at + kLanes <= count; at += kLanes) store(silu(load<Floats>(values + at)), values + at);
  for (; at < count; ++at) values[at] = silu(Floats{} + values[at])[0];
}

}  // namespace
}  // namespace tilepress
