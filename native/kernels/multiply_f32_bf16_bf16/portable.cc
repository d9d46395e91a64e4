// The matrix unit in plain C++, so that the code that drives it runs on any machine.
#include "kernels/multiply_f32_bf16_bf16/multiply_tiles.h"
#include "tilepress/convert.h"

namespace tilepress {
namespace {

struct PlainUnit {
  using Operand = uint16_t;
  using Sum = float;
  static constexpr int kInputs = tile_inputs(16);

  void begin(int rows) { rows_ = rows; }
  void end() {}

  template <int tile>
  void zero() {
    for (float& sum : sums_[tile]) sum = 0.0f;
  }

  template <int tile>
  void load(const void* from, int64_t stride) {
    const int rows = tile < 6 ? rows_ : kTileRows;
    for (int row = 0; row < rows; ++row) {
      __builtin_memcpy(operands_[tile - 4] + row * kInputs, static_cast<const uint8_t*>(from) + row * stride, kVectorBytes);
    }
  }

  template <int sum, int x, int weights>
  void add_product() {
    for (int row = 0; row < rows_; ++row) {
      for (int input = 0; input < kInputs; ++input) {
        const float value = bf16_to_float(operands_[x - 4][row * kInputs + input]);
        for (int neuron = 0; neuron < kBlockNeurons; ++neuron) {
          const uint16_t weight = operands_[weights - 4][element_index(neuron, input, 16)];
          sums_[sum][row * kBlockNeurons + neuron] += value * bf16_to_float(weight);
        }
      }
    }
  }

  template <int tile>
  void store(float* to, int64_t) const {
    __builtin_memcpy(to, sums_[tile], sizeof(sums_[tile]));
  }

  static void add_scaled(const float* sums, const float* scales, int rows, float* out) {
    for (int i = 0; i < rows * kBlockNeurons; ++i) out[i] += scales ? sums[i] * scales[i % kBlockNeurons] : sums[i];
  }

 private:
  int rows_ = 0;
  float sums_[4][kTileRows * kBlockNeurons];
  uint16_t operands_[4][kTileRows * kInputs];
};

}  // namespace

void portable::multiply_bf16_tiles(const TileProduct& product) { TileMultiplier<PlainUnit>(product).run(); }

}  // namespace tilepress
