#include "linear/int8_k_panel.h"
#include "pack/unpack_scalar.h"

namespace tilepress {
namespace {

struct ScalarDot {
  static void dot(const int8_t* operands, const int8_t* x, int rows, int32_t* sums) {
    for (int row = 0; row < rows; ++row, operands += kVectorBytes, x += 4) {
      for (int neuron = 0; neuron < kBlockNeurons; ++neuron) {
        for (int i = 0; i < 4; ++i) sums[neuron] += operands[4 * neuron + i] * x[i];
      }
    }
  }
};

int64_t linear_f32_i8_int(const KPanel& weights, const IntegerActivations& x, float* out, uint8_t* scratch) {
  uint8_t* operands = operands_in(weights, scratch);
  const int64_t consumed = decode_operands<Scalar>(weights, operands, scratch);
  if (consumed < 0) return consumed;
  for (int64_t row = 0; row < x.batch; ++row) {
    multiply_row<ScalarDot>(weights, x, reinterpret_cast<int8_t*>(operands), row, out + row * kBlockNeurons);
  }
  return consumed;
}

TILEPRESS_KERNEL(linear_f32_i8_int);

}  // namespace
}  // namespace tilepress
