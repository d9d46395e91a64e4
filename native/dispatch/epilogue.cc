#include "dispatch/k_panel_loops.h"
#include "dispatch/registry.h"

namespace tilepress {

void store_values(FloatType type, const float* values, int64_t count, uint8_t* to) {
  auto* halves = reinterpret_cast<uint16_t*>(to);
  if (type == FloatType::f32) {
    std::memcpy(to, values, static_cast<size_t>(count) * 4);
  } else if (type == FloatType::bf16) {
    for (int64_t i = 0; i < count; ++i) halves[i] = round_to_bf16(values[i]);
  } else {
    for (int64_t i = 0; i < count; ++i) halves[i] = round_to_fp16(values[i]);
  }
}

Epilogue::Epilogue() : kernel_(choose<ops::epilogue_fp_f32>()) {}

void Epilogue::operator()(const MatrixShape& shape, const Outputs& outputs, int64_t block, int64_t row, int64_t rows,
                          const float* accumulators, const float* scales, int64_t blocks, int64_t block_stride) const {
  const int64_t first = block * kBlockNeurons, row_bytes = outputs.row_bytes(shape);
  const int64_t neurons = std::min(blocks * kBlockNeurons, shape.rows - first);
  kernel_({accumulators, block_stride, rows, scales, outputs.bias ? outputs.bias + first : nullptr, neurons,
           outputs.type, outputs.y + row * row_bytes + first * bytes_of(outputs.type), row_bytes});
}

}  // namespace tilepress
