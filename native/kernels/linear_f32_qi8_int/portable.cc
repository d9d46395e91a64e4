#include "kernels/linear_f32_qi8_int/linear_block.h"
#include "kernels/unpack/scalar.h"

namespace tilepress {
namespace {

struct ScalarDot : Scalar {
  static void dot(const int8_t* operands, const int8_t* x, int rows, int32_t* sums) {
    for (int row = 0; row < rows; ++row, operands += kVectorBytes, x += 4) {
      for (int neuron = 0; neuron < kBlockNeurons; ++neuron) {
        for (int i = 0; i < 4; ++i) sums[neuron] += operands[4 * neuron + i] * x[i];
      }
    }
  }
};

}  // namespace

void portable::linear_int8_block(const LinearBlock& block, float* out, int32_t* sums, uint8_t* scratch) {
  linear_block_with<ScalarDot>(block, out, sums, scratch);
}

}  // namespace tilepress
