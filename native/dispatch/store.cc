#include <stdexcept>

#include "dispatch/spans.h"

namespace tilepress {
namespace {

// The nearest, overflowing to infinity and keeping NaN, as torch converts; float_to_fp16 saturates.
uint16_t to_fp16(float x) {
  constexpr float kOverflow = 65520.0f;  // the least magnitude that rounds to infinity
  const uint32_t sign = std::bit_cast<uint32_t>(x) >> 16 & 0x8000;
  const float magnitude = std::bit_cast<float>(std::bit_cast<uint32_t>(x) & 0x7fffffff);
  if (magnitude >= kOverflow) return static_cast<uint16_t>(sign | 0x7c00);
  return magnitude < kOverflow ? float_to_fp16(x) : 0x7e00;
}

}  // namespace

void store_values(Real type, const float* values, int64_t count, uint8_t* to) {
  auto* halves = reinterpret_cast<uint16_t*>(to);
  if (type == Real::f32) {
    std::memcpy(to, values, static_cast<size_t>(count) * 4);
  } else if (type == Real::bf16) {
    for (int64_t i = 0; i < count; ++i) halves[i] = round_to_bf16(values[i]);
  } else {
    for (int64_t i = 0; i < count; ++i) halves[i] = to_fp16(values[i]);
  }
}

void store_block(const MatrixShape& shape, const Outputs& outputs, int64_t block, int64_t row, int64_t batch,
                 const float* totals, const float* scales) {
  const int64_t first = block * kBlockNeurons;
  float values[kBlockNeurons], bias[kBlockNeurons] = {};
  for (int i = 0; outputs.bias && i < rows_in(shape, block); ++i) bias[i] = outputs.bias[first + i];
  for (int64_t i = 0; i < batch; ++i, totals += kBlockNeurons) {
    const float scale = scales ? scales[i] : 1.0f;
    for (int neuron = 0; neuron < kBlockNeurons; ++neuron) {
      const float product = totals[neuron] * scale;
      values[neuron] = outputs.bias ? product + bias[neuron] : product;
    }
    const int64_t at = ((row + i) * shape.rows + first) * (outputs.type == Real::f32 ? 4 : 2);
    store_values(outputs.type, values, rows_in(shape, block), outputs.y + at);
  }
}

void refuse_way(const std::string& activations, std::initializer_list<std::string_view> ways, std::string_view way) {
  std::string known;
  for (std::string_view name : ways) known += (known.empty() ? "" : ", ") + std::string(name);
  throw std::invalid_argument(activations + " activations are multiplied by " + known + "; not " + std::string(way));
}

}  // namespace tilepress
