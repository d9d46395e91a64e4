// The loops of a linear layer on a matrix unit: blocks are decoded to tiles once for many rows of activations.
#pragma once

#include <array>
#include <numeric>
#include <span>

#include "dispatch/k_panel_loops.h"
#include "dispatch/registry.h"
#include "quantize/scales.h"

namespace tilepress {

inline constexpr int64_t kFewTileRows = 2 * kTileRows;  // in one pass over the weights

// A block over a K-panel, decoded; `out` has the sums of all rows from `row` on.
struct DecodedBlock {
  KPanel k_panel;
  const uint8_t* tiles;
  float* out;
  int64_t row;

  float* sums_of(int64_t of_row) const { return out + (of_row - row) * kBlockNeurons; }
};

// Rows that are multiplied together, from the first of a row panel on; the first of those that come next, or -1; and
// for each block, weights that are needed next, to be fetched meanwhile.
struct RowStrip {
  int64_t row, rows, next;
  const uint8_t* const* ahead;
  int64_t ahead_bytes;
};

// Memory of bf16 tiles, whole steps of them.
inline int64_t bf16_tile_bytes(int64_t inputs) {
  return (inputs + kKPanelStep - 1) / kKPanelStep * kKPanelStep * 2 * kBlockNeurons;
}

// Bytes of a row decoded at a time for many rows: longer K-panels read and write sums less often, and the tiles of all
// blocks still fit the second cache.
inline constexpr int64_t kTileKPanelBytes = 2048;
inline constexpr int64_t kMostTogether = 16;  // blocks

// How many rows are multiplied with one block after another, and of how many rows and blocks a thread keeps the sums,
// at most, such that what is read again stays in its second cache.
struct Blocking {
  int64_t strip, part, together;
};
inline constexpr Blocking kUnitBlocking = {128, 512, kMostTogether};  // of a matrix unit

// tiles: set to those of the blocks, and kept by the product.
using TilePointers = std::array<const void*, kMostTogether>;
inline TileProduct tile_product(std::span<const DecodedBlock> blocks, int64_t count, const void* x, const void* next,
                                int64_t row_panel_stride, const RowStrip& strip, bool first, TilePointers& tiles) {
  for (size_t i = 0; i < blocks.size(); ++i) tiles[i] = blocks[i].tiles;
  const int64_t apart = blocks.size() > 1 ? blocks[1].out - blocks[0].out : 0;
  return {tiles.data(),
          static_cast<int64_t>(blocks.size()),
          count,
          x,
          strip.rows,
          row_panel_stride,
          blocks[0].sums_of(strip.row),
          apart * int64_t{sizeof(float)},
          first,
          next,
          strip.ahead,
          strip.ahead_bytes};
}

// The sums of some rows of a block, which are complete; `totals` [rows, 16] are set to them, or they are added.
struct EndedSums {
  const DecodedBlock& block;
  int64_t row, rows;
  bool first;
  float* totals;

  // Where they are totals as they are.
  void add() const {
    const float* sums = block.sums_of(row);
    for (int64_t i = 0; i < rows * kBlockNeurons; ++i) totals[i] = first ? sums[i] : totals[i] + sums[i];
  }
};

// Tiles is how a kind of operands is decoded and multiplied:
//   kMost: its Blocking; rows(): of activations
//   k_panel(): inputs decoded at a time, a multiple of kKPanelStep; tile_bytes(inputs): of a block's tiles
//   sum_inputs(): inputs, several times k_panel(), with a sum of their own; 0: there is one sum
//   decode(block, tiles, scratch): sets `tiles`, returns as DecodeBf16 does
//   multiply(blocks, strip, first): adds products to the sums, or sets them
//   end_sum(sums): adds complete sums to their totals, or sets those; where there is one sum, it is what is stored
// Few rows are bound by memory: two blocks at a time, decoded into the first cache. Many rows are bound by the matrix
// unit and by reading from farther caches: a thread takes a part of the rows × some blocks, whose sums and decoded
// tiles stay in its second cache; so does each strip of rows, which all of them are multiplied with.
template <class Tiles, class Store>
class TileLoops {
 public:
  TileLoops(const PackedWeights& weights, Tiles& tiles, int threads, const Store& store)
      : weights_(weights),
        tiles_(tiles),
        threads_(threads),
        store_(store),
        scratch_(LinearScratch::of_workers(threads)) {
    divide();
  }

  void run() {
    const int64_t blocks = weights_.shape.blocks(), rows = tiles_.rows(), parts = (rows + part_ - 1) / part_;
    const int64_t items = (blocks + together_ - 1) / together_;
    parallel_for(items * parts, threads_, [&](int worker, int64_t item) {
      const int64_t begin = item % items * together_, row = item / items * part_;
      run_blocks(scratch_[static_cast<size_t>(worker)], begin, std::min(begin + together_, blocks), row,
                 std::min(part_, rows - row));
    });
    require_unchanged(changed_);
  }

 private:
  static constexpr int64_t kStripRows = Tiles::kMost.strip;
  static constexpr double kReadCost = 60;  // of a byte from a far cache, in products; chosen on the AMX machine

  // The division that costs least. Each input of a weight is read once for each part of the rows, each of a row once
  // for each group of blocks; threads that have one item less wait for the others.
  void divide() {
    const int64_t blocks = weights_.shape.blocks(), rows = tiles_.rows();
    together_ = 2, part_ = kStripRows;
    if (rows <= kFewTileRows) return;
    double least = 1e9;
    for (int64_t together = 2; together <= Tiles::kMost.together; together *= 2) {
      for (int64_t part = kStripRows; part <= Tiles::kMost.part; part *= 2) {
        const int64_t items = ((blocks + together - 1) / together) * ((rows + part - 1) / part);
        const double turns = static_cast<double>((items + threads_ - 1) / threads_ * threads_);
        const double reads = 1.0 / static_cast<double>(together * kBlockNeurons) + 1.0 / static_cast<double>(part);
        const double cost = turns / static_cast<double>(items) * (1 + kReadCost * reads);
        if (cost < least) least = cost, together_ = together, part_ = part;
      }
    }
  }

  void run_blocks(LinearScratch& mine, int64_t begin, int64_t end, int64_t row, int64_t rows) {
    const int64_t cols = weights_.shape.cols, blocks = end - begin;
    const int64_t padded = (rows + kTileRows - 1) / kTileRows * kTileRows, count = padded * kBlockNeurons;
    const int64_t apart = tiles_.sum_inputs();
    float *sums = mine.sums_for((apart ? 2 : 1) * blocks * count), *totals = sums + blocks * count;
    int64_t consumed[kMostTogether] = {};
    DecodedBlock decoded[kMostTogether];
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
      const bool last = first + inputs == cols, ends = last || (apart && (first + inputs) % apart == 0);
      const Turn turn = {apart ? first % apart == 0 : first == 0, ends, first < apart, apart ? totals : nullptr, count};
      const int64_t later = std::min(tiles_.k_panel(), cols - first - inputs);
      multiply({decoded, static_cast<size_t>(blocks)}, row, row + rows, turn, later);
    }
    for (int64_t i = 0; i < blocks; ++i) {
      if (!fits(weights_.shape, weights_.streams, begin + i, consumed[i])) changed_ = true;
    }
    store_(begin, row, rows, apart ? totals : sums, blocks, count);
  }

  // A K-panel's: whether sums begin with it, whether they end with it, and then whether totals do.
  struct Turn {
    bool begins, ends, first;
    float* totals;
    int64_t count;  // totals of a block
  };

  // Strip after strip. `later`: inputs of the next K-panel, whose weights are fetched meanwhile.
  void multiply(std::span<const DecodedBlock> blocks, int64_t begin, int64_t end, const Turn& turn, int64_t later) {
    const MatrixShape& shape = weights_.shape;
    const int64_t strips = (end - begin + kStripRows - 1) / kStripRows;
    const int64_t bytes = shape.sparse ? 0 : packed_bytes(later);
    const uint8_t* ahead[kMostTogether] = {};
    for (int64_t i = 0; i < strips; ++i) {
      const int64_t row = begin + i * kStripRows, rows = std::min(kStripRows, end - row);
      const int64_t from = bytes * i / strips / kVectorBytes * kVectorBytes, to = bytes * (i + 1) / strips;
      for (size_t block = 0; bytes && block < blocks.size(); ++block) {
        const KPanel& k_panel = blocks[block].k_panel;
        ahead[block] = k_panel.packed + packed_bytes(k_panel.inputs) + from;
      }
      tiles_.multiply(blocks, {row, rows, i + 1 < strips ? row + rows : -1, ahead, to - from}, turn.begins);
      for (size_t block = 0; turn.ends && block < blocks.size(); ++block) {
        float* totals = turn.totals ? turn.totals + static_cast<int64_t>(block) * turn.count : nullptr;
        tiles_.end_sum(
            {blocks[block], row, rows, turn.first, totals ? totals + (row - begin) * kBlockNeurons : nullptr});
      }
    }
  }

  // Of a dense block.
  int64_t packed_bytes(int64_t inputs) const {
    const MatrixShape& shape = weights_.shape;
    return (inputs + shape.inputs() - 1) / shape.inputs() * tile_code_bytes(shape.bits, shape.operand_bits);
  }

  PackedWeights weights_;
  Tiles& tiles_;
  int threads_;
  const Store& store_;
  std::vector<LinearScratch>& scratch_;
  int64_t together_, part_;
  std::atomic<bool> changed_{false};
};

}  // namespace tilepress
