#include <algorithm>
#include <numeric>
#include <stdexcept>

#include "dispatch/group_loops.h"
#include "dispatch/invariance.h"
#include "dispatch/k_panel_loops.h"
#include "dispatch/registry.h"
#include "dispatch/tile_loops.h"

namespace tilepress {
namespace {

// Rows up to which multiplying weights as they are decoded is faster than decoding them to tiles: without a matrix unit
// more than with it.
constexpr int64_t kFewFloatRows = 1, kFewFloatRowsWithoutUnit = 6;
// The same of float32, where two blocks are multiplied together and elsewhere; and inputs decoded at a time, of which
// two blocks and some rows fit the first cache.
constexpr int64_t kFewF32Rows = 11, kFewF32RowsOneBlock = 16, kF32KPanel = 128;
constexpr int64_t kFloatKPanel = 4096;  // inputs; sums are not defined to the bit, so this only has to fit caches
constexpr int64_t kMostPairRows = 2 * kTileRows;
constexpr int64_t kManyBlocks = 8;  // for each thread: then threads take two at a time
// For each thread, of weights whose scales wait: up to so many read rows as they were given, for more it pays to lay
// those out in tiles first.
constexpr int64_t kBlocksAsGiven = 16;
constexpr int64_t kShortKPanel = 1024, kLongKPanel = 2048;  // decoded to tiles at a time, for few rows and for many

// Inputs of a K-panel of whole groups, at least `least` of them; a row's scale is no group.
int64_t whole_groups(const PackedWeights& weights, int64_t least) {
  const int64_t group = weights.shape.groups > 1 ? weights.format.group : 1,
                step = std::lcm(group, int64_t{kKPanelStep});
  return (least + step - 1) / step * step;
}

// Adds the two parts of each row.
void join_parts(int64_t batch, float* accumulators) {
  for (int64_t i = 0; i < batch / 2; ++i) {
    for (int neuron = 0; neuron < kBlockNeurons; ++neuron) {
      const float* pair = accumulators + 2 * i * kBlockNeurons + neuron;
      accumulators[i * kBlockNeurons + neuron] = pair[0] + pair[kBlockNeurons];
    }
  }
}

// Stores rows that have so many parts.
void store_parts(const Epilogue& epilogue, const MatrixShape& shape, const Outputs& outputs, int64_t block, int64_t row,
                 int64_t batch, int parts, float* accumulators, int64_t blocks = 1, int64_t block_stride = 0) {
  for (int64_t i = 0; parts == 2 && i < blocks; ++i) join_parts(batch, accumulators + i * block_stride);
  epilogue(shape, outputs, block, row / parts, batch / parts, accumulators, nullptr, blocks, block_stride);
}

// Every block of every task times rows that a linear kernel takes, which have so many parts.
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

void linear_f32(std::span<const LinearProblem> problems, const Activations& x, int threads) {
  const PackedWeights& first = problems.front().weights;
  F32Rows rows(first.shape, x, 0);
  multiply_k_panels(choose<ops::linear_f32_f32_any>(), problems, rows, whole_groups(first, kFloatKPanel), threads);
}

class F32Weights {
 public:
  explicit F32Weights(const F32Rows& x)
      : x_(x), decode_(choose<ops::decode_f32_any>()), multiply_(choose<ops::matmul_f32_f32_f32>()) {}

  int64_t rows() const { return x_.batch(); }
  int64_t k_panel() const { return kF32KPanel; }
  int64_t sums_k_panel() const { return 0; }
  // Whole steps: of the last inputs, as many are decoded as lie together.
  int64_t tile_bytes(int64_t inputs) const {
    return (inputs + kKPanelStep - 1) / kKPanelStep * kKPanelStep * kBlockNeurons * int64_t{sizeof(float)};
  }

  int64_t decode(DecodedBlock& block, uint8_t* weights, uint8_t* scratch) const {
    block.tiles = weights;
    return decode_(block.k_panel, reinterpret_cast<float*>(weights), scratch);
  }

  void multiply(const DecodedBlock& one, const DecodedBlock* two, int64_t row, int64_t rows) const {
    const auto weights = [](const DecodedBlock& block) { return reinterpret_cast<const float*>(block.tiles); };
    multiply_({{weights(one), two ? weights(*two) : nullptr},
               one.k_panel.inputs,
               x_.view(row, rows, one.k_panel.first),
               {one.sums_of(row), two ? two->sums_of(row) : nullptr}});
  }

 private:
  const F32Rows& x_;
  KernelOf<ops::decode_f32_any> decode_;
  KernelOf<ops::matmul_f32_f32_f32> multiply_;
};

void linear_f32_decoded(const PackedWeights& weights, const Activations& x, const Outputs& outputs, int threads) {
  F32Rows rows(weights.shape, x, kF32KPanel);
  prepare(rows, threads);
  F32Weights decoded(rows);
  const Epilogue epilogue;
  const auto store = [&](int64_t block, int64_t row, int64_t batch, float* accumulators) {
    store_parts(epilogue, weights.shape, outputs, block, row, batch, 1, accumulators);
  };
  TileLoops(weights, decoded, threads, store).run();
}

// Whether one row of fp16 serves all matrices.
bool halves_alike(std::span<const LinearProblem> problems) {
  const PackedWeights& first = problems.front().weights;
  return std::ranges::all_of(problems, [&](const LinearProblem& problem) {
    return problem.weights.half_exponent == first.half_exponent &&
           problem.weights.format.half_unit == first.format.half_unit;
  });
}

void linear_f16(std::span<const LinearProblem> problems, const Activations& x, int threads) {
  const PackedWeights& first = problems.front().weights;
  HalfRows rows(first.shape, x, first.half_exponent, first.format.half_unit);
  multiply_k_panels(choose<ops::linear_f32_f16_any>(), problems, rows, whole_groups(first, kFloatKPanel), threads);
  linear_f32_rows(problems, x, rows.bad_rows(), threads);
}

void linear_bf16(std::span<const LinearProblem> problems, const Activations& x, int threads) {
  const PackedWeights& first = problems.front().weights;
  Bf16Rows rows(first.shape, x, Bf16Rows::rows);
  multiply_k_panels(choose<ops::linear_f32_bf16_any>(), problems, rows, whole_groups(first, kFloatKPanel), threads,
                    rows.parts());
}

// Groups' scales are multiplied into the tiles; a row's is applied to its sums.
class Bf16Tiles {
 public:
  Bf16Tiles(const PackedWeights& weights, const Bf16Rows& x)
      : x_(x),
        k_panel_(whole_groups(weights, x.batch() <= kFewTileRows ? kShortKPanel : kLongKPanel)),
        folded_(weights.shape.groups > 1 || scales_first(weights.format)),
        scaled_(!folded_ && weights.format.scale != ScaleType::none),
        decode_(choose<ops::decode_bf16_any>()),
        multiply_(choose<ops::matmul_f32_bf16_bf16>()) {}

  int64_t rows() const { return x_.batch(); }
  int64_t k_panel() const { return k_panel_; }
  int64_t sums_k_panel() const { return 0; }
  int64_t tile_bytes(int64_t inputs) const { return bf16_tile_bytes(inputs); }

  // Dense bf16 lies in memory as its tiles do.
  int64_t decode(DecodedBlock& block, uint8_t* tiles, uint8_t* scratch) const {
    const Format& format = *block.k_panel.format;
    for (int i = 0; scaled_ && i < kBlockNeurons; ++i) {
      block.scales[i] = load_scale(format.scale, block.k_panel.scales, i);
    }
    const bool as_it_lies = format.rounding == Rounding::bf16 && !block.k_panel.mask && !folded_;
    block.tiles = as_it_lies ? block.k_panel.packed : tiles;
    return as_it_lies ? 0 : decode_(block.k_panel, folded_, reinterpret_cast<uint16_t*>(tiles), scratch);
  }

  void multiply(const DecodedBlock& one, const DecodedBlock* two, int64_t row, int64_t rows) const {
    const auto tiles = [](const DecodedBlock& block) { return reinterpret_cast<const uint16_t*>(block.tiles); };
    multiply_({{tiles(one), two ? tiles(*two) : nullptr},
               {scaled_ ? one.scales : nullptr, two && scaled_ ? two->scales : nullptr},
               (one.k_panel.inputs + tile_inputs(16) - 1) / tile_inputs(16),
               x_.tiled(row, rows, one.k_panel.first),
               {one.sums_of(row), two ? two->sums_of(row) : nullptr}});
  }

 private:
  const Bf16Rows& x_;
  int64_t k_panel_;
  bool folded_, scaled_;
  KernelOf<ops::decode_bf16_any> decode_;
  KernelOf<ops::matmul_f32_bf16_bf16> multiply_;
};

void linear_bf16_tiles(const PackedWeights& weights, const Activations& x, const Outputs& outputs, int threads) {
  Bf16Rows rows(weights.shape, x, Bf16Rows::row_panels);
  prepare(rows, threads);
  Bf16Tiles tiles(weights, rows);
  const Epilogue epilogue;
  const auto store = [&](int64_t block, int64_t row, int64_t batch, float* accumulators) {
    store_parts(epilogue, weights.shape, outputs, block, row, batch, rows.parts(), accumulators);
  };
  TileLoops(weights, tiles, threads, store).run();
}

// Whether groups are whole tiles, so that their scales can wait until a group is summed, and codes small, so that there
// is much to be saved.
bool groups_take(const PackedWeights& weights) {
  const Format& format = weights.format;
  return weights.shape.groups > 1 && format.group % tile_inputs(16) == 0 && format.bits <= (format.zero_point ? 4 : 6);
}

// Whether the matrix unit's own decoder takes the weights: not dense fields that must be unpacked first, nor zero
// points of many bits. (It may still refuse a table that has no zero.)
bool pairs_take(const PackedWeights& weights) {
  const int bits = weights.format.bits;
  return (weights.shape.sparse || bits == 4 || bits >= 8) && !(weights.format.zero_point && bits > 4);
}

// Blocks decoded as they are multiplied with one or two row panels. False, with nothing done, where the kernel does not
// take the weights.
class Bf16Pairs {
 public:
  Bf16Pairs(const PackedWeights& weights, Bf16Rows& x, int64_t row, const Outputs& outputs)
      : weights_(weights),
        x_(x),
        row_(row),
        rows_(std::min<int64_t>(kMostPairRows, x.batch() - row)),
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

void linear_bf16_groups(const PackedWeights& weights, const Activations& x, const Outputs& outputs, int threads) {
  const bool as_given = weights.shape.blocks() <= kBlocksAsGiven * threads;
  Bf16Rows rows(weights.shape, x, as_given ? Bf16Rows::row_panels_or_given : Bf16Rows::row_panels);
  const GroupedLayer<Bf16Rows> layer = {weights, rows, weights.format.group, weights.shape.cols};
  const Epilogue epilogue;
  const auto store = [&](int64_t block, int64_t row, int64_t batch, float* accumulators) {
    store_parts(epilogue, weights.shape, outputs, block, row, batch, rows.parts(), accumulators);
  };
  if (!GroupLoops(layer, rows.batch(), store).run(threads)) linear_bf16_tiles(weights, x, outputs, threads);
}

void linear_bf16_pairs(const PackedWeights& weights, const Activations& x, const Outputs& outputs, int threads) {
  Bf16Rows rows(weights.shape, x, Bf16Rows::row_panels_or_given);
  for (int64_t row = 0; row < rows.batch(); row += kMostPairRows) {
    if (!Bf16Pairs(weights, rows, row, outputs).run(threads)) return linear_bf16_tiles(weights, x, outputs, threads);
  }
}

// Whether products of bf16 are there and precise enough.
bool takes_bf16(FloatType precision) { return precision != FloatType::f32 && find<ops::linear_f32_bf16_any>(); }

// The operation for activations that stay floats.
std::string_view variant_of_floats(const PackedWeights& weights, int64_t batch, FloatType precision) {
  if (!takes_bf16(precision)) {
    const bool pairs = find<ops::matmul_f32_f32_f32>()->isa == Isa::avx512;
    return batch <= (pairs ? kFewF32Rows : kFewF32RowsOneBlock) ? ops::linear_f32_f32_any::kName
                                                                : ops::matmul_f32_f32_f32::kName;
  }
  const bool unit = on_matrix_unit<ops::linear_f32_bf16_any_tiles>();
  const int64_t rows = batch * Bf16Rows::parts_of(precision);
  if (rows <= (unit ? kFewFloatRows : kFewFloatRowsWithoutUnit)) return ops::linear_f32_bf16_any::kName;
  // Powers of two are as well multiplied in.
  if (unit && rows <= kMostPairRows && groups_take(weights) && weights.format.scale != ScaleType::e8m0) {
    return ops::linear_f32_bf16_any_groups::kName;
  }
  return unit && rows <= kMostPairRows && pairs_take(weights) ? ops::linear_f32_bf16_any_tiles::kName
                                                              : ops::matmul_f32_bf16_bf16::kName;
}

// Rows up to which weights that are integers, and 4-bit codes that stand for some, are better multiplied with limbs of
// integers: without zero points, with them, looked up, of more than four bits; then the same of sparse ones.
struct LimbRows {
  int64_t dense[4], sparse[4];
};

// With two limbs, and with three. As timed on x86; on ARM as instructions are counted of three.
LimbRows limb_rows(FloatType precision) {
  const Isa isa = find<ops::linear_f32_i8_int>()->isa;
  const bool two = limbs_of(float_limbs(precision).mantissa) == 2;
  if (isa == Isa::portable) return {};
  if (isa == Isa::neon_dotprod || isa == Isa::neon_i8mm) return {{4, 4, 3, 4}, {4, 4, 2, 4}};
  if (isa == Isa::avx2 && find<ops::linear_f32_f32_any>()->isa != Isa::avx2) {  // floats are wider
    return two ? LimbRows{{2, 6, 2, 0}, {}} : LimbRows{{1, 2, 0, 0}, {}};
  }
  if (isa == Isa::avx2) return two ? LimbRows{{6, 6, 3, 1}, {3, 0, 2, 1}} : LimbRows{{2, 2, 2, 2}, {2, 0, 0, 2}};
  if (isa == Isa::avx512_vnni) {
    return two ? LimbRows{{16, 16, 16, 16}, {16, 3, 3, 0}} : LimbRows{{6, 6, 6, 2}, {2, 2, 0, 0}};
  }
  if (!takes_bf16(precision)) {
    return two ? LimbRows{{16, 16, 16, 16}, {16, 16, 4, 16}} : LimbRows{{6, 6, 6, 8}, {3, 3, 2, 8}};
  }
  if (!on_matrix_unit<ops::linear_f32_bf16_any_tiles>()) {
    return two ? LimbRows{{16, 16, 16, 16}, {16, 8, 4, 16}} : LimbRows{{16, 16, 16, 16}, {16, 16, 2, 16}};
  }
  return two ? LimbRows{{3, 4, 1, 3}, {4, 4, 3, 4}} : LimbRows{{5, 8, 4, 6}, {6, 3, 2, 4}};
}

int64_t few_limb_rows(const PackedWeights& weights, FloatType precision) {
  const Format& format = weights.format;
  const int kind = format.integers ? 2 : format.bits > 4 ? 3 : format.zero_point ? 1 : 0;
  const LimbRows rows = limb_rows(precision);
  return (weights.shape.sparse ? rows.sparse : rows.dense)[kind];
}

// The same of fp16.
int64_t few_half_rows(const PackedWeights& weights) {
  const Kernel* kernel = find<ops::linear_f32_f16_any>();
  if (!kernel) return 0;
  if (kernel->isa == Isa::neon_dotprod) return 4;
  return weights.shape.sparse ? 2 : 1;
}

// Whether weights and activations can be multiplied as fp16: groups are whole tiles.
bool halves_take(const PackedWeights& weights) {
  const bool whole_tiles = weights.shape.groups <= 1 || weights.format.group % tile_inputs(16) == 0;
  return weights.half_exponent != kNoHalves && weights.shape.operand_bits == 16 && whole_tiles;
}

}  // namespace

void linear_f32_rows(std::span<const LinearProblem> problems, const Activations& x, std::span<const int64_t> rows,
                     int threads) {
  for (const int64_t row : rows) {
    std::vector<LinearProblem> of_row(problems.begin(), problems.end());
    for (auto& [weights, outputs] : of_row) outputs.y += row * weights.shape.rows * bytes_of(outputs.type);
    linear_f32(of_row, rows_of(x, problems.front().weights.shape.cols, row, 1), threads);
  }
}

std::string_view float_variant(const PackedWeights& weights, int64_t batch, FloatType precision) {
  if (batch_invariant()) return ops::matmul_f32_f32_f32::kName;
  if (limbs_take(weights) && batch <= few_limb_rows(weights, precision)) return ops::linear_f32_i8_int::kName;
  // Sums of fp16 are not what is expected of float32.
  if (precision != FloatType::f32 && batch <= few_half_rows(weights) && halves_take(weights))
    return ops::linear_f32_f16_any::kName;
  return variant_of_floats(weights, batch, precision);
}

void linear_float(const PackedWeights& weights, const Activations& x, std::string_view variant, const Outputs& outputs,
                  int threads) {
  const LinearProblem problem = {weights, outputs};
  if (variant == ops::linear_f32_i8_int::kName) {
    if (!limbs_take(weights)) {
      throw std::invalid_argument(std::string(variant) +
                                  " wants integer weights in 8-bit tiles, or 4-bit tables of integers in 16-bit ones");
    }
    linear_limbs({&problem, 1}, x, threads);
    return;
  }
  if (variant == ops::linear_f32_f16_any::kName) {
    if (!halves_take(weights)) {
      throw std::invalid_argument(
          std::string(variant) +
          " wants weights that fp16 holds, in 16-bit tiles and in groups of a multiple of 32 inputs");
    }
    return linear_f16({&problem, 1}, x, threads);
  }
  if (variant == ops::linear_f32_f32_any::kName) return linear_f32({&problem, 1}, x, threads);
  if (variant == ops::matmul_f32_f32_f32::kName) return linear_f32_decoded(weights, x, outputs, threads);
  if (variant == ops::linear_f32_bf16_any::kName) return linear_bf16({&problem, 1}, x, threads);
  if (variant != ops::linear_f32_bf16_any_tiles::kName && variant != ops::matmul_f32_bf16_bf16::kName &&
      variant != ops::linear_f32_bf16_any_groups::kName) {
    refuse_variant(
        "float",
        {ops::linear_f32_f32_any::kName, ops::linear_f32_i8_int::kName, ops::linear_f32_f16_any::kName,
         ops::linear_f32_bf16_any::kName, ops::linear_f32_bf16_any_tiles::kName, ops::linear_f32_bf16_any_groups::kName,
         ops::matmul_f32_f32_f32::kName, ops::matmul_f32_bf16_bf16::kName},
        variant);
  }
  if (variant == ops::linear_f32_bf16_any_groups::kName && !groups_take(weights)) {
    throw std::invalid_argument(
        std::string(variant) +
        " wants codes of at most 6 bits, 4 with a zero point, in groups of a multiple of 32 inputs");
  }
  if (variant == ops::linear_f32_bf16_any_tiles::kName) return linear_bf16_pairs(weights, x, outputs, threads);
  (variant == ops::linear_f32_bf16_any_groups::kName ? linear_bf16_groups : linear_bf16_tiles)(weights, x, outputs,
                                                                                               threads);
}

bool grouped_linear_float(std::span<const LinearProblem> problems, const Activations& x, int threads) {
  const PackedWeights& first = problems.front().weights;
  const std::string_view variant = float_variant(first, x.batch, x.precision);
  if (variant == ops::linear_f32_i8_int::kName) {
    return std::ranges::all_of(problems, [](const LinearProblem& problem) { return limbs_take(problem.weights); }) &&
           linear_limbs(problems, x, threads);
  }
  if (variant != ops::linear_f32_f32_any::kName && variant != ops::linear_f32_f16_any::kName &&
      variant != ops::linear_f32_bf16_any::kName)
    return false;
  for (const auto& [weights, outputs] : problems) {
    const bool same = weights.shape.cols == first.shape.cols &&
                      weights.shape.operand_bits == first.shape.operand_bits &&
                      whole_groups(weights, kFloatKPanel) == whole_groups(first, kFloatKPanel);
    if (!same || float_variant(weights, x.batch, x.precision) != variant) return false;
  }
  if (variant == ops::linear_f32_f16_any::kName && !halves_alike(problems)) return false;
  (variant == ops::linear_f32_f16_any::kName   ? linear_f16
   : variant == ops::linear_f32_f32_any::kName ? linear_f32
                                               : linear_bf16)(problems, x, threads);
  return true;
}

}  // namespace tilepress
