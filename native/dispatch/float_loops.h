// What layers with float activations share: K-panels of whole groups, rows in parts, loops over linear kernels.
#pragma once

#include <numeric>

#include "dispatch/k_panel_loops.h"

namespace tilepress {

inline constexpr int64_t kFloatKPanel =
    4096;  // inputs; sums are not defined to the bit, so this only has to fit caches

// Inputs of a K-panel of whole groups, at least `least` of them; a row's scale is no group.
inline int64_t whole_groups(const PackedWeights& weights, int64_t least) {
  const int64_t group = weights.shape.groups > 1 ? weights.format.group : 1,
                step = std::lcm(group, int64_t{kKPanelStep});
  return (least + step - 1) / step * step;
}

// Adds the two parts of each row: accumulators [batch, 16] to [batch / 2, 16].
inline void join_parts(int64_t batch, float* accumulators) {
  for (int64_t i = 0; i < batch / 2; ++i) {
    for (int neuron = 0; neuron < kBlockNeurons; ++neuron) {
      const float* pair = accumulators + 2 * i * kBlockNeurons + neuron;
      accumulators[i * kBlockNeurons + neuron] = pair[0] + pair[kBlockNeurons];
    }
  }
}

// Stores results of rows that have `parts` parts each.
inline void store_parts(const Epilogue& epilogue, const MatrixShape& shape, const Outputs& outputs, int64_t block,
                        int64_t row, int64_t batch, int parts, float* accumulators, int64_t blocks = 1,
                        int64_t block_stride = 0) {
  for (int64_t i = 0; parts == 2 && i < blocks; ++i) join_parts(batch, accumulators + i * block_stride);
  epilogue(shape, outputs, block, row / parts, batch / parts, accumulators, nullptr, blocks, block_stride);
}

// Stores the blocks of one problem, as TileLoops and GroupLoops call it.
class StoreFloats {
 public:
  StoreFloats(const LinearProblem& problem, int parts) : problem_(problem), parts_(parts) {}

  void operator()(int64_t block, int64_t row, int64_t batch, float* accumulators, int64_t blocks = 1,
                  int64_t block_stride = 0) const {
    store_parts(epilogue_, problem_.weights.shape, problem_.outputs, block, row, batch, parts_, accumulators, blocks,
                block_stride);
  }

 private:
  const LinearProblem& problem_;
  int parts_;
  Epilogue epilogue_;
};

// Every block of every problem times rows of `parts` parts each, by a linear kernel.
template <class Kernel, class Rows>
void multiply_k_panels(Kernel* kernel, std::span<const LinearProblem> problems, Rows& rows, int64_t k_panel,
                       int threads, int parts = 1) {
  const auto multiply = [&](const KPanel& weights, int64_t row, int64_t batch, float* out, uint8_t* scratch) {
    return kernel(weights, rows.view(row, batch, weights.first), out, scratch);
  };
  const Epilogue epilogue;
  const auto store = [&](const LinearProblem& problem, int64_t block, int64_t row, int64_t batch, float* accumulators) {
    store_parts(epilogue, problem.weights.shape, problem.outputs, block, row, batch, parts, accumulators);
  };
  KPanelLoops(problems, rows, k_panel, rows.batch(), threads, multiply, store).run();
}

}  // namespace tilepress
