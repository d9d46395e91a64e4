#include "kernels/multiply_f32_bf16_bf16/multiply_lots.h"
#include "kernels/plain_unit.h"

namespace tilepress {
namespace {

struct Bf16Unit : PlainUnit<uint16_t, float> {
  static void add_scaled(const float* sums, const float* scales, int rows, float* out) {
    for (int i = 0; i < rows * kBlockNeurons; ++i) out[i] += scales ? sums[i] * scales[i % kBlockNeurons] : sums[i];
  }
};

}  // namespace

void portable::multiply_bf16_tiles(const Bf16Product& product) { Bf16Multiplier<Bf16Unit>(product).run(); }

}  // namespace tilepress
