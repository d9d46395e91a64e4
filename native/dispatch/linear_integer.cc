#include <algorithm>
#include <stdexcept>

#include "dispatch/group_loops.h"
#include "dispatch/k_panel_loops.h"
#include "dispatch/registry.h"
#include "dispatch/tile_loops.h"

namespace tilepress {
namespace {

// Rows up to which multiplying weights as they are decoded is faster than decoding them to tiles.
constexpr int64_t kFewIntegerRows = 8;

class Int8Tiles {
 public:
  Int8Tiles(const IntegerRows& x, const Cut& cut, int64_t rows)
      : x_(x),
        rows_(rows),
        k_panel_(cut.k_panel),
        decode_(choose<ops::decode_i8_int>()),
        multiply_(choose<ops::matmul_f32_i8_i8>()) {}

  int64_t rows() const { return rows_; }
  int64_t k_panel() const { return k_panel_; }
  int64_t sums_k_panel() const { return 0; }
  int64_t tile_bytes(int64_t inputs) const {
    return (inputs + kKPanelStep - 1) / kKPanelStep * kKPanelStep * kBlockNeurons;
  }

  int64_t decode(DecodedBlock& block, uint8_t* tiles, uint8_t* scratch) const {
    block.tiles = tiles;
    return decode_(block.k_panel, reinterpret_cast<int8_t*>(tiles), scratch);
  }

  void multiply(const DecodedBlock& one, const DecodedBlock* two, int64_t row, int64_t rows) const {
    const auto tiles = [](const DecodedBlock& block) { return reinterpret_cast<const int8_t*>(block.tiles); };
    multiply_({{&one.k_panel, two ? &two->k_panel : nullptr},
               {tiles(one), two ? tiles(*two) : nullptr},
               x_.view(row, rows, one.k_panel.first),
               x_.row_panel_stride(),
               k_panel_,
               {one.sums_of(row), two ? two->sums_of(row) : nullptr}});
  }

 private:
  const IntegerRows& x_;
  int64_t rows_, k_panel_;
  KernelOf<ops::decode_i8_int> decode_;
  KernelOf<ops::matmul_f32_i8_i8> multiply_;
};

void linear_int8_tiles(const PackedWeights& weights, const Activations& x, const IntegerFormat& rounding,
                       const Cut& cut, const Outputs& outputs, int threads) {
  IntegerRows rows(weights.shape, x, rounding, cut, weight_unit(weights.format), Placing::int8_tiles);
  prepare(rows, threads);
  Int8Tiles tiles(rows, cut, x.batch);
  const Epilogue epilogue;
  const auto store = [&](int64_t block, int64_t row, int64_t batch, float* accumulators) {
    epilogue(weights.shape, outputs, block, row, batch, accumulators, rows.scales(row));
  };
  TileLoops(weights, tiles, threads, store).run();
}

// Whether a matrix unit can be served with bf16, which holds nine bits, instead of int8: a segment is one tile of bf16,
// and codes are so few that they are looked up. The largest sum, in steps of a zero point 255 · 255 · 32, is exact. For
// eight bits int8 is better.
bool bf16_serves(const PackedWeights& weights, const IntegerFormat& rounding, const Cut& cut) {
  return cut.segment == tile_inputs(16) && weights.format.bits <= 4 && rounding.mantissa <= 8;
}

// Whether a matrix unit can be served with int8: its kernels take two limbs at most.
bool int8_serves(const IntegerFormat& rounding, const Cut& cut) {
  return tiles_accept(cut.segment) && limbs_of(rounding.mantissa) <= 2;
}

void linear_bf16_groups(const PackedWeights& weights, const Activations& x, const IntegerFormat& rounding,
                        const Cut& cut, bool decoded_first, const Outputs& outputs, int threads) {
  IntegerRows rows(weights.shape, x, rounding, cut, 1.0f, Placing::bf16_tiles);
  const GroupedLayer<IntegerRows> layer = {weights, rows, cut.segment, cut.k_panel};
  const Epilogue epilogue;
  const auto store = [&](int64_t block, int64_t row, int64_t batch, float* accumulators) {
    epilogue(weights.shape, outputs, block, row, batch, accumulators, rows.scales(row));
  };
  if (!decoded_first && GroupLoops(layer, x.batch, store).run(threads)) return;
  prepare(rows, threads);
  GroupTiles tiles(layer, x.batch);
  TileLoops(weights, tiles, threads, store).run();
}

// Blocks decoded as they are multiplied with one or two row panels.
class Int8Pairs {
 public:
  Int8Pairs(const PackedWeights& weights, IntegerRows& x, const Cut& cut, const Outputs& outputs)
      : weights_(weights), x_(x), cut_(cut), outputs_(outputs), kernel_(choose<ops::linear_f32_i8_int_tiles>()) {}

  // Of `rows` rows from `row` on, in `row panels` row panels, limbs among them.
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
    kernel_({blocks, count, x_.view(row, rows, 0), x_.row_panel_stride(), cut_.k_panel, accumulators}, consumed,
            mine.kernel_for(blocks_scratch_bytes(blocks[0].tiles)));
    for (int64_t i = 0; i < count; ++i) {
      if (consumed[i] < 0 || !fits(shape, weights_.streams, first + i, consumed[i])) changed_ = true;
    }
    epilogue_(shape, outputs_, first, row, rows, accumulators, x_.scales(row), count, sums);
  }

  const PackedWeights& weights_;
  IntegerRows& x_;
  const Cut& cut_;
  const Outputs& outputs_;
  KernelOf<ops::linear_f32_i8_int_tiles> kernel_;
  Epilogue epilogue_;
  std::atomic<bool> changed_{false};
};

void linear_int8_pairs(const PackedWeights& weights, const Activations& x, const IntegerFormat& rounding,
                       const Cut& cut, const Outputs& outputs, int threads) {
  IntegerRows rows(weights.shape, x, rounding, cut, weight_unit(weights.format), Placing::int8_tiles);
  const int64_t limbs = limbs_of(rounding.mantissa), most = limbs == 2 ? kTileRows : 2 * kTileRows;
  Int8Pairs pairs(weights, rows, cut, outputs);
  for (int64_t row = 0; row < x.batch; row += most) {
    const int64_t batch = std::min(most, x.batch - row);
    pairs.run(row, batch, (batch + kTileRows - 1) / kTileRows * limbs, threads);
  }
}

// Whether the kernel that multiplies rows would rather have four of them, of nine bits, in five lines.
bool nine_bit_lines_serve(const IntegerFormat& rounding, int64_t batch) {
  const Isa isa = find<ops::linear_f32_i8_int>()->isa;
  return rounding.mantissa == 8 && batch > 2 && (isa == Isa::neon_dotprod || isa == Isa::portable);
}

// Rows that cannot be rounded so are multiplied as float32; only those of `nearest` are.
void linear_int8_k_panels(std::span<const LinearProblem> problems, const Activations& x, const IntegerFormat& rounding,
                          const Cut& cut, int threads) {
  const auto kernel = choose<ops::linear_f32_i8_int>();
  const PackedWeights& first = problems.front().weights;
  IntegerRows rows(first.shape, x, rounding, cut, weight_unit(first.format),
                   nine_bit_lines_serve(rounding, x.batch) ? Placing::nine_bit_lines : Placing::rows);
  const auto multiply = [&](const KPanel& k_panel, int64_t row, int64_t batch, float* out, uint8_t* scratch) {
    return kernel(k_panel, rows.view(row, batch, k_panel.first), out, scratch);
  };
  const Epilogue epilogue;
  const auto store = [&](const LinearProblem& problem, int64_t block, int64_t row, int64_t batch, float* accumulators) {
    epilogue(problem.weights.shape, problem.outputs, block, row, batch, accumulators, rows.scales(row));
  };
  KPanelLoops(problems, rows, cut.k_panel, x.batch, threads, multiply, store).run();
  linear_f32_rows(problems, x, rows.bad_rows(), threads);
}

// Whether one row of activations serves all matrices, cut as the first wants it.
bool cut_alike(std::span<const LinearProblem> problems, const IntegerFormat& rounding) {
  const PackedWeights& first = problems.front().weights;
  const Cut cut = cut_inputs(first.shape, first.format, rounding.group);
  return std::ranges::all_of(problems, [&](const LinearProblem& problem) {
    const PackedWeights& weights = problem.weights;
    const Cut other = cut_inputs(weights.shape, weights.format, rounding.group);
    return other.segment == cut.segment && other.k_panel == cut.k_panel && weights.shape.cols == first.shape.cols &&
           weight_unit(weights.format) == weight_unit(first.format);
  });
}

}  // namespace

std::string_view integer_variant(const PackedWeights& weights, int64_t batch, const IntegerFormat& rounding) {
  const Cut cut = cut_inputs(weights.shape, weights.format, rounding.group);
  const int64_t rows = batch * limbs_of(rounding.mantissa);
  const bool unit = on_matrix_unit<ops::linear_f32_i8_int_tiles>();
  if (!unit || rows <= kFewIntegerRows || !int8_serves(rounding, cut)) return ops::linear_f32_i8_int::kName;
  if (bf16_serves(weights, rounding, cut) && rounding.mantissa == 8) {
    return batch <= 2 * kTileRows ? ops::linear_f32_bf16_any_groups::kName : ops::matmul_f32_bf16_bf16_groups::kName;
  }
  return rows <= 2 * kTileRows ? ops::linear_f32_i8_int_tiles::kName : ops::matmul_f32_i8_i8::kName;
}

void linear_integer(const PackedWeights& weights, const Activations& x, const IntegerFormat& rounding,
                    std::string_view variant, const Outputs& outputs, int threads) {
  const Cut cut = cut_inputs(weights.shape, weights.format, rounding.group);
  if (variant == ops::linear_f32_i8_int::kName) {
    const LinearProblem problem = {weights, outputs};
    linear_int8_k_panels({&problem, 1}, x, rounding, cut, threads);
    return;
  }
  if (variant == ops::linear_f32_bf16_any_groups::kName || variant == ops::matmul_f32_bf16_bf16_groups::kName) {
    if (!bf16_serves(weights, rounding, cut)) {
      throw std::invalid_argument(
          std::string(variant) + " wants codes of at most 4 bits in groups of 32 inputs, and activations of at most 8");
    }
    return linear_bf16_groups(weights, x, rounding, cut, variant == ops::matmul_f32_bf16_bf16_groups::kName, outputs,
                              threads);
  }
  if (variant != ops::linear_f32_i8_int_tiles::kName && variant != ops::matmul_f32_i8_i8::kName) {
    refuse_variant(
        "integer",
        {ops::linear_f32_i8_int::kName, ops::linear_f32_i8_int_tiles::kName, ops::linear_f32_bf16_any_groups::kName,
         ops::matmul_f32_i8_i8::kName, ops::matmul_f32_bf16_bf16_groups::kName},
        variant);
  }
  if (!int8_serves(rounding, cut)) {
    throw std::invalid_argument(std::string(variant) +
                                " wants groups of 32 inputs or a multiple of 64, and activations of at most 14 bits");
  }
  if (variant == ops::linear_f32_i8_int_tiles::kName)
    return linear_int8_pairs(weights, x, rounding, cut, outputs, threads);
  linear_int8_tiles(weights, x, rounding, cut, outputs, threads);
}

bool grouped_linear_integer(std::span<const LinearProblem> problems, const Activations& x,
                            const IntegerFormat& rounding, int threads) {
  const PackedWeights& first = problems.front().weights;
  const bool same_variant = std::ranges::all_of(problems, [&](const LinearProblem& problem) {
    return integer_variant(problem.weights, x.batch, rounding) == ops::linear_f32_i8_int::kName;
  });
  if (!same_variant || !cut_alike(problems, rounding)) return false;
  linear_int8_k_panels(problems, x, rounding, cut_inputs(first.shape, first.format, rounding.group), threads);
  return true;
}

bool limbs_take(const PackedWeights& weights) {
  const int operand_bits = weights.format.integers ? 16 : 8;
  return (weights.format.integers || weights.format.rounding == Rounding::integer) &&
         weights.shape.operand_bits == operand_bits;
}

bool linear_limbs(std::span<const LinearProblem> problems, const Activations& x, int threads) {
  const PackedWeights& first = problems.front().weights;
  const IntegerFormat limbs = float_limbs(x.precision);
  if (!cut_alike(problems, limbs)) return false;
  linear_int8_k_panels(problems, x, limbs, cut_inputs(first.shape, first.format, limbs.group), threads);
  return true;
}

}  // namespace tilepress
