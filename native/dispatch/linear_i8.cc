// Layers with activations as integers.
#include <algorithm>
#include <numeric>
#include <span>

#include "dispatch/group_loops.h"
#include "dispatch/k_panel_loops.h"
#include "dispatch/layers.h"
#include "dispatch/registry.h"
#include "dispatch/tile_loops.h"

namespace tilepress {
namespace {

KSplit split_of(const PackedWeights& weights, const IntegerFormat& rounding) {
  return split_inputs(weights.shape, weights.format, rounding.group);
}

// What decodes weights to int8, as TileLoops takes it.
class Int8Tiles {
 public:
  Int8Tiles(const IntegerRows& x, const KSplit& split, int64_t rows)
      : x_(x), split_(split), rows_(rows), decode_(choose<ops::decode_i8_int>()) {}

  static constexpr Blocking kMost = kUnitBlocking;
  int64_t rows() const { return rows_; }
  int64_t sum_inputs() const { return split_.k_panel; }
  static int64_t tile_bytes(int64_t inputs) {
    return (inputs + kKPanelStep - 1) / kKPanelStep * kKPanelStep * kBlockNeurons;
  }

  int64_t decode(DecodedBlock& block, uint8_t* tiles, uint8_t* scratch) const {
    block.tiles = tiles;
    return decode_(block.k_panel, reinterpret_cast<int8_t*>(tiles), scratch);
  }

 protected:
  const IntegerRows& x_;
  const KSplit& split_;
  int64_t rows_;

 private:
  KernelOf<ops::decode_i8_int> decode_;
};

// Segments that are whole K-panels, of int8 activations: their dot products are summed as integers.
class WholeInt8Tiles : public Int8Tiles {
 public:
  WholeInt8Tiles(const IntegerRows& x, const KSplit& split, int64_t rows)
      : Int8Tiles(x, split, rows),
        multiply_(choose<ops::matmul_i32_i8_i8>()),
        scale_(choose<ops::epilogue_f32_i32>()) {}

  int64_t k_panel() const { return std::gcd(kTileKPanelBytes, split_.k_panel); }

  void multiply(std::span<const DecodedBlock> blocks, const RowStrip& strip, bool first) const {
    const KPanel& k_panel = blocks.front().k_panel;
    const auto x = [&](int64_t row) { return row < 0 ? nullptr : x_.view(row, 0, k_panel.first).limbs[0]; };
    const int64_t count = (k_panel.inputs + tile_inputs(8) - 1) / tile_inputs(8);
    TilePointers tiles;
    multiply_(tile_product(blocks, count, x(strip.row), x(strip.next), x_.row_panel_stride(), strip, first, tiles));
  }

  void end_sum(const EndedSums& ended) const {
    KPanel whole = ended.block.k_panel;
    whole.first = whole.first / split_.k_panel * split_.k_panel;
    const float* dots = ended.block.sums_of(ended.row);
    scale_({&whole, x_.view(ended.row, ended.rows, whole.first), reinterpret_cast<const int32_t*>(dots), ended.totals,
            ended.first});
  }

 private:
  KernelOf<ops::matmul_i32_i8_i8> multiply_;
  KernelOf<ops::epilogue_f32_i32> scale_;
};

// Shorter segments, whose dot products are scaled and summed as floats, one by one.
class SegmentInt8Tiles : public Int8Tiles {
 public:
  SegmentInt8Tiles(const IntegerRows& x, const KSplit& split, int64_t rows)
      : Int8Tiles(x, split, rows), multiply_(choose<ops::matmul_f32_i8_i8>()) {}

  int64_t k_panel() const {
    const int64_t step = std::lcm(split_.segment, int64_t{kKPanelStep});
    return step * std::gcd(std::max<int64_t>(kShortKPanel / step, 1), split_.k_panel / step);
  }

  void multiply(std::span<const DecodedBlock> blocks, const RowStrip& strip, bool first) const {
    for (size_t i = 0; i < blocks.size(); i += 2) {
      const DecodedBlock &one = blocks[i], *two = i + 1 < blocks.size() ? &blocks[i + 1] : nullptr;
      const auto tiles = [](const DecodedBlock& block) { return reinterpret_cast<const int8_t*>(block.tiles); };
      multiply_({{&one.k_panel, two ? &two->k_panel : nullptr},
                 {tiles(one), two ? tiles(*two) : nullptr},
                 x_.view(strip.row, strip.rows, one.k_panel.first),
                 x_.row_panel_stride(),
                 split_.k_panel,
                 {one.sums_of(strip.row), two ? two->sums_of(strip.row) : nullptr},
                 true,
                 first});
    }
  }

  static void end_sum(const EndedSums& ended) { ended.add(); }

 private:
  static constexpr int64_t kShortKPanel = 1024;  // inputs decoded at a time

  KernelOf<ops::matmul_f32_i8_i8> multiply_;
};

// linear_f32_i8_int_tiles: blocks decoded as they are multiplied with one or two row panels.
class Int8TileRun {
 public:
  Int8TileRun(const PackedWeights& weights, IntegerRows& x, const KSplit& split, const Outputs& outputs)
      : weights_(weights), x_(x), split_(split), outputs_(outputs), kernel_(choose<ops::linear_f32_i8_int_tiles>()) {}

  // Rows from `row` on; each limb of 16 rows is a row panel.
  void run(int64_t row, int64_t rows, int64_t row_panels, int threads) {
    const int64_t blocks = weights_.shape.blocks(), step = row_panels > 1 ? 2 : 1;
    std::vector<LinearScratch>& scratch = LinearScratch::of_workers(threads);
    const BlockPrefetch ask(weights_, step, x_.view(row, rows, 0).limbs[0], row_panels * x_.row_panel_stride());
    parallel_after(x_, (blocks + step - 1) / step, threads, ask, [&](int worker, int64_t item, int64_t item_end) {
      const int64_t end = std::min(step * item_end, blocks);
      for (int64_t block = step * item; block < end; block += kBlocksAtOnce) {
        run_blocks(scratch[static_cast<size_t>(worker)], block, std::min(kBlocksAtOnce, end - block), row, rows);
      }
    });
    require_unchanged(changed_);
  }

 private:
  void run_blocks(LinearScratch& mine, int64_t first, int64_t count, int64_t row, int64_t rows) {
    const MatrixShape& shape = weights_.shape;
    const int64_t sums = (rows + kTileRows - 1) / kTileRows * kTileRows * kBlockNeurons;  // of a block
    KPanel blocks[kBlocksAtOnce];
    for (int64_t i = 0; i < count; ++i) blocks[i] = k_panel_of(weights_, first + i, 0, shape.cols, 0);
    int64_t consumed[kBlocksAtOnce] = {};
    float* accumulators = mine.accumulators_for(count * sums);
    kernel_({blocks, count, x_.view(row, rows, 0), x_.row_panel_stride(), split_.k_panel, accumulators}, consumed,
            mine.kernel_for(blocks_scratch_bytes(blocks[0].tiles)));
    for (int64_t i = 0; i < count; ++i) {
      if (consumed[i] < 0 || !fits(shape, weights_.streams, first + i, consumed[i])) changed_ = true;
    }
    epilogue_(shape, outputs_, first, row, rows, accumulators, x_.scales(row), count, sums);
  }

  const PackedWeights& weights_;
  IntegerRows& x_;
  const KSplit& split_;
  const Outputs& outputs_;
  KernelOf<ops::linear_f32_i8_int_tiles> kernel_;
  Epilogue epilogue_;
  std::atomic<bool> changed_{false};
};

// Results of a block's totals, times the rows' scales where they have some.
class StoreScaled {
 public:
  StoreScaled(const LinearProblem& problem, const IntegerRows& rows) : problem_(problem), rows_(rows) {}

  void operator()(int64_t block, int64_t row, int64_t batch, float* accumulators, int64_t blocks = 1,
                  int64_t block_stride = 0) const {
    epilogue_(problem_.weights.shape, problem_.outputs, block, row, batch, accumulators, rows_.scales(row), blocks,
              block_stride);
  }

 private:
  const LinearProblem& problem_;
  const IntegerRows& rows_;
  Epilogue epilogue_;
};

// Whether the kernel is faster with four rows of nine bits in five lines (nine_bits.h).
bool nine_bit_lines_serve(const IntegerFormat& rounding, int64_t batch) {
  const Isa isa = find<ops::linear_f32_i8_int>()->isa;
  return rounding.mantissa == 8 && batch > 2 && (isa == Isa::neon_dotprod || isa == Isa::portable);
}

}  // namespace

namespace layers {

// Rows that cannot be rounded are multiplied as float32; only rounding to the nearest has such.
void linear_f32_i8_int(std::span<const LinearProblem> problems, const Activations& x, const IntegerFormat& rounding,
                       int threads) {
  const PackedWeights& first = problems.front().weights;
  const KSplit split = split_of(first, rounding);
  const auto kernel = choose<ops::linear_f32_i8_int>();
  IntegerRows rows(first.shape, x, rounding, split, weight_unit(first.format),
                   nine_bit_lines_serve(rounding, x.batch) ? Placing::nine_bit_lines : Placing::rows);
  const auto multiply = [&](const KPanel& k_panel, int64_t row, int64_t batch, float* out, uint8_t* scratch) {
    return kernel(k_panel, rows.view(row, batch, k_panel.first), out, scratch);
  };
  const Epilogue epilogue;
  const auto store = [&](const LinearProblem& problem, int64_t block, int64_t row, int64_t batch, float* accumulators) {
    epilogue(problem.weights.shape, problem.outputs, block, row, batch, accumulators, rows.scales(row));
  };
  KPanelLoops(problems, rows, split.k_panel, x.batch, threads, multiply, store).run();
  f32_rows(problems, x, rows.bad_rows(), threads);
}

void linear_f32_i8_int(std::span<const LinearProblem> problems, const Activations& x, const FloatType& precision,
                       int threads) {
  linear_f32_i8_int(problems, x, float_limbs(precision), threads);
}

void linear_f32_i8_int_tiles(std::span<const LinearProblem> problems, const Activations& x,
                             const IntegerFormat& rounding, int threads) {
  const PackedWeights& weights = problems.front().weights;
  const KSplit split = split_of(weights, rounding);
  IntegerRows rows(weights.shape, x, rounding, split, weight_unit(weights.format), Placing::int8_tiles);
  const int64_t limbs = limbs_of(rounding.mantissa), most = limbs == 2 ? kTileRows : 2 * kTileRows;
  Int8TileRun blocks(weights, rows, split, problems.front().outputs);
  for (int64_t row = 0; row < x.batch; row += most) {
    const int64_t batch = std::min(most, x.batch - row);
    blocks.run(row, batch, (batch + kTileRows - 1) / kTileRows * limbs, threads);
  }
}

void matmul_f32_i8_i8(std::span<const LinearProblem> problems, const Activations& x, const IntegerFormat& rounding,
                      int threads) {
  const PackedWeights& weights = problems.front().weights;
  const KSplit split = split_of(weights, rounding);
  IntegerRows rows(weights.shape, x, rounding, split, weight_unit(weights.format), Placing::int8_tiles);
  prepare(rows, threads);
  const StoreScaled store(problems.front(), rows);
  const auto run = [&](auto tiles) { TileLoops(weights, tiles, threads, store).run(); };
  split.segment == split.k_panel ? run(WholeInt8Tiles(rows, split, x.batch))
                                 : run(SegmentInt8Tiles(rows, split, x.batch));
}

void linear_f32_bf16_any_groups(std::span<const LinearProblem> problems, const Activations& x,
                                const IntegerFormat& rounding, int threads) {
  const PackedWeights& weights = problems.front().weights;
  const KSplit split = split_of(weights, rounding);
  IntegerRows rows(weights.shape, x, rounding, split, 1.0f, Placing::bf16_tiles);
  const GroupedLayer<IntegerRows> layer = {weights, rows, split.segment, split.k_panel};
  const StoreScaled store(problems.front(), rows);
  if (!GroupLoops(layer, x.batch, store).run(threads)) matmul_f32_bf16_bf16_groups(problems, x, rounding, threads);
}

void matmul_f32_bf16_bf16_groups(std::span<const LinearProblem> problems, const Activations& x,
                                 const IntegerFormat& rounding, int threads) {
  const PackedWeights& weights = problems.front().weights;
  const KSplit split = split_of(weights, rounding);
  IntegerRows rows(weights.shape, x, rounding, split, 1.0f, Placing::bf16_tiles);
  prepare(rows, threads);
  const GroupedLayer<IntegerRows> layer = {weights, rows, split.segment, split.k_panel};
  GroupTiles tiles(layer, x.batch);
  const StoreScaled store(problems.front(), rows);
  TileLoops(weights, tiles, threads, store).run();
}

bool share_integers(std::span<const LinearProblem> problems, const IntegerFormat& rounding) {
  const PackedWeights& first = problems.front().weights;
  const KSplit split = split_of(first, rounding);
  return std::ranges::all_of(problems, [&](const LinearProblem& problem) {
    const PackedWeights& weights = problem.weights;
    const KSplit own = split_of(weights, rounding);
    return own.segment == split.segment && own.k_panel == split.k_panel && weights.shape.cols == first.shape.cols &&
           weight_unit(weights.format) == weight_unit(first.format);
  });
}

bool share_limbs(std::span<const LinearProblem> problems, const FloatType& precision) {
  return share_integers(problems, float_limbs(precision));
}

}  // namespace layers
}  // namespace tilepress
