// The loops of a linear layer on a matrix unit: blocks are decoded to tiles once for all rows of activations.
#pragma once

#include <numeric>

#include "dispatch/k_panel_loops.h"
#include "dispatch/registry.h"
#include "quantize/scales.h"

namespace tilepress {

inline constexpr int64_t kFewTileRows = 2 * kTileRows;  // in one pass over the weights

// A block over a K-panel, decoded; `out` [16 * row panels, 16], of rows from `row` on.
struct DecodedBlock {
  KPanel k_panel;
  const uint8_t* tiles;
  float scales[kBlockNeurons];
  float* out;
  int64_t row;

  float* sums_of(int64_t of_row) const { return out + (of_row - row) * kBlockNeurons; }
};

// Memory of bf16 tiles, whole steps of them.
inline int64_t bf16_tile_bytes(int64_t inputs) {
  return (inputs + kKPanelStep - 1) / kKPanelStep * kKPanelStep * 2 * kBlockNeurons;
}

// Tiles is how a kind of operands is decoded and multiplied:
//   rows(): of activations; k_panel(): inputs, a multiple of kKPanelStep; tile_bytes(inputs): of a block's tiles
//   sums_k_panel(): inputs, whole K-panels, with a sum of their own; 0 where sums are not defined to the bit
//   decode(block, tiles, scratch): sets `tiles` and `scales`, returns as DecodeBf16 does
//   multiply(first, second or null, row, rows): adds products of `rows` rows from `row` on, whole row panels but the
//   last
//   store(block, row, rows, totals): totals [rows, 16] of one block
// Few rows are bound by memory: two blocks at a time, decoded into the first cache. Many rows are bound by the matrix
// unit and by reading activations from farther caches, which more blocks at a time do less often. Where blocks are too
// few for all threads, rows are divided in parts, and blocks decoded again for each.
template <class Tiles, class Store>
class TileLoops {
 public:
  TileLoops(const PackedWeights& weights, Tiles& tiles, int threads, const Store& store)
      : weights_(weights),
        tiles_(tiles),
        threads_(threads),
        store_(store),
        scratch_(LinearScratch::of_workers(threads)),
        together_(tiles.rows() <= kFewTileRows ? 2 : many_together()),
        items_((weights.shape.blocks() + together_ - 1) / together_),
        part_rows_(rows_of_part()) {}

  void run() {
    const int64_t blocks = weights_.shape.blocks(), rows = tiles_.rows(), parts = (rows + part_rows_ - 1) / part_rows_;
    parallel_for(items_ * parts, threads_, [&](int worker, int64_t item) {
      const int64_t begin = item % items_ * together_, row = item / items_ * part_rows_;
      run_blocks(scratch_[static_cast<size_t>(worker)], begin, std::min(begin + together_, blocks), row,
                 std::min(part_rows_, rows - row));
    });
    require_unchanged(changed_);
  }

 private:
  static constexpr int64_t kItems = 3;  // for each thread: some may be half as fast again as others
  static constexpr int64_t kFewBlocks = 4, kMostBlocks = 8;
  static constexpr int64_t kRowsAtOnce = 64, kLeastPart = 2 * kRowsAtOnce, kMostPart = 1024;

  // As many as leave each thread an item, and more than kFewBlocks only where each has kItems then.
  int64_t many_together() const {
    const int64_t blocks = weights_.shape.blocks(), even = blocks / threads_ / 2 * 2;
    return std::clamp<int64_t>(even, 2, blocks >= kItems * kMostBlocks * threads_ ? kMostBlocks : kFewBlocks);
  }

  int64_t rows_of_part() const {
    const int64_t items = threads_ > 1 ? kItems * threads_ : 1, parts = (items + items_ - 1) / items_;
    const int64_t rows = (tiles_.rows() + parts - 1) / parts;
    return std::clamp((rows + kRowsAtOnce - 1) / kRowsAtOnce * kRowsAtOnce, kLeastPart, kMostPart);
  }

  void run_blocks(LinearScratch& mine, int64_t begin, int64_t end, int64_t row, int64_t rows) {
    const int64_t cols = weights_.shape.cols, blocks = end - begin;
    const int64_t count = (rows + kTileRows - 1) / kTileRows * kTileRows * kBlockNeurons;
    const bool apart = tiles_.sums_k_panel();
    float* accumulators = mine.accumulators_for((apart ? 2 : 1) * blocks * count);
    float* sums = accumulators + (apart ? blocks * count : 0);
    int64_t consumed[kMostBlocks] = {};
    DecodedBlock decoded[kMostBlocks];
    for (int64_t i = 0; i < blocks; ++i) decoded[i].out = sums + i * count, decoded[i].row = row;
    for (int64_t first = 0; first < cols; first += tiles_.k_panel()) {
      const int64_t inputs = std::min(tiles_.k_panel(), cols - first), bytes = tiles_.tile_bytes(inputs);
      uint8_t* memory = mine.tiles_for(blocks * bytes);
      for (int64_t i = 0; i < blocks; ++i) {
        decoded[i].k_panel = k_panel_of(weights_, begin + i, first, inputs, consumed[i]);
        uint8_t* scratch = mine.kernel_for(k_panel_scratch_bytes(decoded[i].k_panel.tiles));
        const int64_t took = tiles_.decode(decoded[i], memory + i * bytes, scratch);
        if (took < 0) changed_ = true;
        consumed[i] += std::max<int64_t>(took, 0);
      }
      multiply(decoded, blocks, row, row + rows);
      if (apart && ((first + inputs) % tiles_.sums_k_panel() == 0 || first + inputs == cols)) {
        for (int64_t i = 0; i < blocks * count; ++i) accumulators[i] += sums[i];
        std::fill(sums, sums + blocks * count, 0.0f);
      }
    }
    for (int64_t i = 0; i < blocks; ++i) {
      if (!fits(weights_.shape, weights_.streams, begin + i, consumed[i])) changed_ = true;
      store_(begin + i, row, rows, accumulators + i * count);
    }
  }

  void multiply(const DecodedBlock* decoded, int64_t blocks, int64_t row, int64_t end) {
    for (; row < end; row += kRowsAtOnce) {
      const int64_t rows = std::min(kRowsAtOnce, end - row);
      for (int64_t i = 0; i < blocks; i += 2) {
        tiles_.multiply(decoded[i], i + 1 < blocks ? &decoded[i + 1] : nullptr, row, rows);
      }
    }
  }

  PackedWeights weights_;
  Tiles& tiles_;
  int threads_;
  const Store& store_;
  std::vector<LinearScratch>& scratch_;
  int64_t together_, items_, part_rows_;
  std::atomic<bool> changed_{false};
};

}  // namespace tilepress
