// bf16 on the emulator.
#pragma once

#include "matrix_unit/emulator/registers.h"

namespace tilepress {
namespace {

struct Bf16Unit : EmulatedUnit<uint16_t, float> {
  static void add_scaled(const float* sums, const float* scales, int rows, float* out) {
    for (int i = 0; i < rows * kBlockNeurons; ++i) out[i] += scales ? sums[i] * scales[i % kBlockNeurons] : sums[i];
  }
};

}  // namespace
}  // namespace tilepress
