// Layers with weights and activations as bf16.
#include <algorithm>

#include "dispatch/float_loops.h"
#include "dispatch/group_loops.h"
#include "dispatch/layers.h"
#include "dispatch/registry.h"
#include "dispatch/tile_loops.h"

namespace tilepress {
namespace {

constexpr int64_t kRowsAtOnce = 2 * kTileRows;  // of linear_f32_bf16_any_tiles
constexpr int64_t kManyBlocks = 8;              // per thread: then threads take two at a time
// Blocks per thread, of linear_f32_bf16_any_groups: up to so many read rows as given; for more, laying rows out in
// tiles first pays.
constexpr int64_t kBlocksAsGiven = 16;
constexpr int64_t kShortKPanel = 1024;  // inputs decoded at a time, for few rows

// Weights decoded to bf16, as TileLoops takes them. Group scales are multiplied into the tiles, a row's scale is
// applied to its sums.
class Bf16Tiles {
 public:
  Bf16Tiles(const PackedWeights& weights, const Bf16Rows& x)
      : x_(x),
        k_panel_(whole_groups(weights, x.batch() <= kFewTileRows ? kShortKPanel : kTileKPanelBytes / 2)),
        folded_(weights.shape.groups > 1 || scales_first(weights.format)),
        scaled_(!folded_ && weights.format.scale != ScaleType::none),
        decode_(choose<ops::decode_bf16_any>()),
        multiply_(choose<ops::matmul_f32_bf16_bf16>()) {}

  static constexpr Blocking kMost = kUnitBlocking;
  int64_t rows() const { return x_.batch(); }
  int64_t k_panel() const { return k_panel_; }
  static int64_t sum_inputs() { return 0; }
  int64_t tile_bytes(int64_t inputs) const { return bf16_tile_bytes(inputs); }

  // Dense bf16 lies in memory as its tiles do; for many rows, which read it again and again, it is copied together.
  int64_t decode(DecodedBlock& block, uint8_t* tiles, uint8_t* scratch) const {
    const Format& format = *block.k_panel.format;
    const bool as_it_lies =
        rows() <= kFewTileRows && format.rounding == Rounding::bf16 && !block.k_panel.mask && !folded_;
    block.tiles = as_it_lies ? block.k_panel.packed : tiles;
    return as_it_lies ? 0 : decode_(block.k_panel, folded_, reinterpret_cast<uint16_t*>(tiles), scratch);
  }

  void multiply(std::span<const DecodedBlock> blocks, const RowStrip& strip, bool first) const {
    const KPanel& k_panel = blocks.front().k_panel;
    const auto x = [&](int64_t row) { return row < 0 ? nullptr : x_.tiled(row, 0, k_panel.first).first; };
    const int64_t stride = x_.tiled(0, 0, 0).row_panel_stride * int64_t{sizeof(uint16_t)};
    const int64_t count = (k_panel.inputs + tile_inputs(16) - 1) / tile_inputs(16);
    TilePointers tiles;
    multiply_(tile_product(blocks, count, x(strip.row), x(strip.next), stride, strip, first, tiles));
  }

  // A row's scales are applied to its sums.
  void end_sum(const EndedSums& ended) const {
    if (!scaled_) return;
    const KPanel& k_panel = ended.block.k_panel;
    float scales[kBlockNeurons], *sums = ended.block.sums_of(ended.row);
    for (int i = 0; i < kBlockNeurons; ++i) scales[i] = load_scale(k_panel.format->scale, k_panel.scales, i);
    for (int64_t i = 0; i < ended.rows * kBlockNeurons; ++i) sums[i] *= scales[i % kBlockNeurons];
  }

 private:
  const Bf16Rows& x_;
  int64_t k_panel_;
  bool folded_, scaled_;
  KernelOf<ops::decode_bf16_any> decode_;
  KernelOf<ops::matmul_f32_bf16_bf16> multiply_;
};

// linear_f32_bf16_any_tiles: blocks decoded as they are multiplied with one or two row panels. run() is false, with
// nothing done, where the kernel does not take the weights.
class Bf16TileRun {
 public:
  Bf16TileRun(const PackedWeights& weights, Bf16Rows& x, int64_t row, const Outputs& outputs)
      : weights_(weights),
        x_(x),
        row_(row),
        rows_(std::min<int64_t>(kRowsAtOnce, x.batch() - row)),
        outputs_(outputs),
        kernel_(choose<ops::linear_f32_bf16_any_tiles>()),
        folded_(weights.shape.groups > 1 || scales_first(weights.format)) {}

  bool run(int threads) {
    std::vector<LinearScratch>& scratch = LinearScratch::of_workers(threads);
    const int64_t blocks = weights_.shape.blocks(), step = blocks < kManyBlocks * threads ? 1 : 2;
    const BlockPrefetch ask(weights_, step, x_.tiled(row_, rows_, 0));
    parallel_after(x_, (blocks + step - 1) / step, threads, ask, [&](int worker, int64_t item, int64_t item_end) {
      const int64_t end = std::min(step * item_end, blocks);
      for (int64_t block = step * item; block < end && !refused_; block += kBlocksAtOnce) {
        run_blocks(scratch[static_cast<size_t>(worker)], block, std::min(kBlocksAtOnce, end - block),
                   step > 1 || rows_ <= kTileRows);
      }
    });
    require_unchanged(changed_);
    return !refused_;
  }

 private:
  void run_blocks(LinearScratch& mine, int64_t first, int64_t count, bool in_pairs) {
    const MatrixShape& shape = weights_.shape;
    const int64_t sums = (rows_ + kTileRows - 1) / kTileRows * kTileRows * kBlockNeurons;  // of a block
    const bool scaled = !folded_ && weights_.format.scale != ScaleType::none;
    KPanel blocks[kBlocksAtOnce];
    float scales[kBlocksAtOnce][kBlockNeurons];
    for (int64_t i = 0; i < count; ++i) {
      blocks[i] = k_panel_of(weights_, first + i, 0, shape.cols, 0);
      for (int j = 0; scaled && j < kBlockNeurons; ++j) {
        scales[i][j] = load_scale(weights_.format.scale, blocks[i].scales, j);
      }
    }
    int64_t consumed[kBlocksAtOnce] = {};
    float* accumulators = mine.accumulators_for(count * sums);
    const Bf16Blocks all = {blocks,
                            count,
                            in_pairs,
                            folded_,
                            scaled ? scales[0] : nullptr,
                            (shape.cols + tile_inputs(16) - 1) / tile_inputs(16),
                            x_.tiled(row_, rows_, 0),
                            accumulators};
    if (!kernel_(all, consumed, mine.kernel_for(blocks_scratch_bytes(blocks[0].tiles)))) {
      refused_ = true;
      return;
    }
    for (int64_t i = 0; i < count; ++i) {
      if (consumed[i] < 0 || !fits(shape, weights_.streams, first + i, consumed[i])) changed_ = true;
    }
    store_parts(epilogue_, shape, outputs_, first, row_, rows_, x_.parts(), accumulators, count, sums);
  }

  const PackedWeights& weights_;
  Bf16Rows& x_;
  int64_t row_, rows_;
  const Outputs& outputs_;
  KernelOf<ops::linear_f32_bf16_any_tiles> kernel_;
  Epilogue epilogue_;
  bool folded_;
  std::atomic<bool> changed_{false}, refused_{false};
};

}  // namespace

namespace layers {

void linear_f32_bf16_any(std::span<const LinearProblem> problems, const Activations& x, const FloatType&, int threads) {
  const PackedWeights& first = problems.front().weights;
  Bf16Rows rows(first.shape, x, Bf16Rows::rows);
  multiply_k_panels(choose<ops::linear_f32_bf16_any>(), problems, rows, whole_groups(first, kFloatKPanel), threads,
                    rows.parts());
}

void matmul_f32_bf16_bf16(std::span<const LinearProblem> problems, const Activations& x, const FloatType&,
                          int threads) {
  const PackedWeights& weights = problems.front().weights;
  Bf16Rows rows(weights.shape, x, Bf16Rows::row_panels);
  prepare(rows, threads);
  Bf16Tiles tiles(weights, rows);
  const StoreFloats store(problems.front(), rows.parts());
  TileLoops(weights, tiles, threads, store).run();
}

void linear_f32_bf16_any_groups(std::span<const LinearProblem> problems, const Activations& x,
                                const FloatType& precision, int threads) {
  const PackedWeights& weights = problems.front().weights;
  const bool as_given = weights.shape.blocks() <= kBlocksAsGiven * threads;
  Bf16Rows rows(weights.shape, x, as_given ? Bf16Rows::row_panels_or_given : Bf16Rows::row_panels);
  const GroupedLayer<Bf16Rows> layer = {weights, rows, weights.format.group, weights.shape.cols};
  const StoreFloats store(problems.front(), rows.parts());
  if (!GroupLoops(layer, rows.batch(), store).run(threads)) matmul_f32_bf16_bf16(problems, x, precision, threads);
}

void linear_f32_bf16_any_tiles(std::span<const LinearProblem> problems, const Activations& x,
                               const FloatType& precision, int threads) {
  const PackedWeights& weights = problems.front().weights;
  Bf16Rows rows(weights.shape, x, Bf16Rows::row_panels_or_given);
  for (int64_t row = 0; row < rows.batch(); row += kRowsAtOnce) {
    if (!Bf16TileRun(weights, rows, row, problems.front().outputs).run(threads)) {
      return matmul_f32_bf16_bf16(problems, x, precision, threads);
    }
  }
}

}  // namespace layers
}  // namespace tilepress
