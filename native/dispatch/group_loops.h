// The loops of a linear layer on a matrix unit whose scales wait until a group is summed.
#pragma once

#include <numeric>

#include "dispatch/registry.h"
#include "dispatch/tile_loops.h"

namespace tilepress {

// What both operations below multiply. Rows is Bf16Rows or IntegerRows; `group` inputs share every scale; each K-panel
// of `k_panel` inputs has its own sum.
template <class Rows>
struct GroupedLayer {
  const PackedWeights& weights;
  Rows& x;
  int64_t group, k_panel;

  GroupProduct product(const KPanel& k_panel_of, const uint8_t* tiles, int64_t row, int64_t rows, float* sums) const {
    const int64_t count = (k_panel_of.inputs + tile_inputs(16) - 1) / tile_inputs(16);
    return {&k_panel_of, reinterpret_cast<const uint16_t*>(tiles), count,
            group,       x.tiled(row, rows, k_panel_of.first),     sums};
  }
};

// linear_f32_bf16_any_groups: a block at a time, decoded as it is multiplied with one row panel, for each row panel
// again. False, with nothing done, where the kernel does not take the weights.
//   store(block, row, rows, totals)
template <class Rows, class Store>
class GroupLoops {
 public:
  GroupLoops(const GroupedLayer<Rows>& layer, int64_t batch, const Store& store)
      : layer_(layer), batch_(batch), store_(store), kernel_(choose<ops::linear_f32_bf16_any_groups>()) {}

  bool run(int threads) {
    std::vector<LinearScratch>& scratch = LinearScratch::of_workers(threads);
    const BlockPrefetch ask(layer_.weights, 1, layer_.x.tiled(0, batch_, 0));
    parallel_after(layer_.x, layer_.weights.shape.blocks(), threads, ask, [&](int worker, int64_t block, int64_t end) {
      for (; block < end; ++block) {
        for (int64_t row = 0; row < batch_ && !refused_; row += kTileRows) {
          run_block(scratch[static_cast<size_t>(worker)], block, row);
        }
      }
    });
    require_unchanged(changed_);
    return !refused_;
  }

 private:
  static constexpr int64_t kSums = kTileRows * kBlockNeurons;

  void run_block(LinearScratch& mine, int64_t block, int64_t row) {
    const MatrixShape& shape = layer_.weights.shape;
    const int64_t rows = std::min<int64_t>(kTileRows, batch_ - row);
    float *accumulators = mine.accumulators_for(2 * kSums), *sums = accumulators + kSums;
    int64_t consumed = 0;
    for (int64_t first = 0; first < shape.cols; first += layer_.k_panel) {
      const int64_t inputs = std::min(layer_.k_panel, shape.cols - first);
      const KPanel k_panel = k_panel_of(layer_.weights, block, first, inputs, consumed);
      int64_t took = 0;
      std::fill(sums, sums + kSums, 0.0f);
      if (!kernel_(layer_.product(k_panel, nullptr, row, rows, sums), &took,
                   mine.kernel_for(group_scratch_bytes(k_panel.tiles)))) {
        refused_ = true;
        return;
      }
      if (took < 0) changed_ = true;
      consumed += std::max<int64_t>(took, 0);
      for (int64_t i = 0; i < rows * kBlockNeurons; ++i) accumulators[i] += sums[i];
    }
    if (!fits(shape, layer_.weights.streams, block, consumed)) changed_ = true;
    store_(block, row, rows, accumulators);
  }

  const GroupedLayer<Rows>& layer_;
  int64_t batch_;
  const Store& store_;
  KernelOf<ops::linear_f32_bf16_any_groups> kernel_;
  std::atomic<bool> changed_{false}, refused_{false};
};

// matmul_f32_bf16_bf16_groups: tiles without their scales, as TileLoops takes them.
template <class Rows>
class GroupTiles {
 public:
  GroupTiles(const GroupedLayer<Rows>& layer, int64_t rows)
      : layer_(layer),
        rows_(rows),
        decode_(choose<ops::decode_bf16_any>()),
        multiply_(choose<ops::matmul_f32_bf16_bf16_groups>()) {}

  static constexpr Blocking kMost = kUnitBlocking;
  int64_t rows() const { return rows_; }
  int64_t k_panel() const {
    const int64_t step = std::lcm(layer_.group, int64_t{kKPanelStep});
    return std::min((kDecodedAtOnce + step - 1) / step * step, layer_.k_panel);
  }
  int64_t sum_inputs() const { return layer_.k_panel; }
  int64_t tile_bytes(int64_t inputs) const { return bf16_tile_bytes(inputs); }

  int64_t decode(DecodedBlock& block, uint8_t* tiles, uint8_t* scratch) const {
    block.tiles = tiles;
    return decode_(block.k_panel, false, reinterpret_cast<uint16_t*>(tiles), scratch);
  }

  void multiply(std::span<const DecodedBlock> blocks, const RowStrip& strip, bool first) const {
    for (const DecodedBlock& block : blocks) {
      alignas(64) uint8_t scales[(kDecodedAtOnce / 32 + 2) * kBlockNeurons * sizeof(float)];
      float* sums = block.sums_of(strip.row);
      if (first) std::fill(sums, sums + strip.rows * kBlockNeurons, 0.0f);
      multiply_(layer_.product(block.k_panel, block.tiles, strip.row, strip.rows, sums), scales);
    }
  }

  static void end_sum(const EndedSums& ended) { ended.add(); }

 private:
  static constexpr int64_t kDecodedAtOnce = 1024;  // inputs

  const GroupedLayer<Rows>& layer_;
  int64_t rows_;
  KernelOf<ops::decode_bf16_any> decode_;
  KernelOf<ops::matmul_f32_bf16_bf16_groups> multiply_;
};

}  // namespace tilepress
