#include <algorithm>
#include <numeric>
#include <stdexcept>

#include "dispatch/group_loops.h"
#include "dispatch/invariance.h"
#include "dispatch/registry.h"
#include "dispatch/spans.h"
#include "dispatch/tile_loops.h"

namespace tilepress {
namespace {

// Rows up to which multiplying weights as they are decoded is faster than decoding them to tiles: without a matrix unit
// more than with it.
constexpr int64_t kFewFloatRows = 1, kFewFloatRowsWithoutUnit = 6;
// The same of float32, where two blocks are multiplied together and elsewhere; and inputs decoded at a time, of which
// two blocks and some rows fit the first cache.
constexpr int64_t kFewF32Rows = 11, kFewF32RowsOneBlock = 16, kF32Span = 128;
constexpr int64_t kFloatSpan = 4096;  // inputs; sums are not defined to the bit, so this only has to fit caches
constexpr int64_t kMostPairRows = 2 * kTileRows;
constexpr int64_t kManyBlocks = 8;  // for each thread: then threads take two at a time
// For each thread, of weights whose scales wait: up to so many read rows as they were given, for more it pays to lay
// those out in tiles first.
constexpr int64_t kBlocksAsGiven = 16;
constexpr int64_t kShortSpan = 1024, kLongSpan = 2048;  // decoded to tiles at a time, for few rows and for many

// Inputs of a span of whole groups, at least `least` of them; a row's scale is no group.
int64_t whole_groups(const PackedWeights& weights, int64_t least) {
  const int64_t group = weights.shape.groups > 1 ? weights.format.group : 1, step = std::lcm(group, int64_t{kSpanStep});
  return (least + step - 1) / step * step;
}

// Adds the two parts of each row.
void join_parts(int64_t batch, float* totals) {
  for (int64_t i = 0; i < batch / 2; ++i) {
    for (int neuron = 0; neuron < kBlockNeurons; ++neuron) {
      const float* pair = totals + 2 * i * kBlockNeurons + neuron;
      totals[i * kBlockNeurons + neuron] = pair[0] + pair[kBlockNeurons];
    }
  }
}

// Stores rows that have so many parts.
void store_parts(const BlockStore& store_block, const MatrixShape& shape, const Outputs& outputs, int64_t block,
                 int64_t row, int64_t batch, int parts, float* totals, int64_t blocks = 1, int64_t block_stride = 0) {
  for (int64_t i = 0; parts == 2 && i < blocks; ++i) join_parts(batch, totals + i * block_stride);
  store_block(shape, outputs, block, row / parts, batch / parts, totals, nullptr, blocks, block_stride);
}

// Every block of every task times rows that a linear kernel takes, which have so many parts.
template <class Kernel, class Rows>
void multiply_spans(Kernel* kernel, std::span<const LinearTask> tasks, Rows& rows, int64_t span, int threads,
                    int parts = 1) {
  const auto multiply = [&](const SpanWeights& weights, int64_t row, int64_t batch, float* out, uint8_t* scratch) {
    return kernel(weights, rows.view(row, batch, weights.first), out, scratch);
  };
  const BlockStore store_block;
  const auto store = [&](const LinearTask& task, int64_t block, int64_t row, int64_t batch, float* totals) {
    store_parts(store_block, task.weights.shape, task.outputs, block, row, batch, parts, totals);
  };
  SpanLoops(tasks, rows, span, rows.batch(), threads, multiply, store).run();
}

void linear_f32(std::span<const LinearTask> tasks, const Activations& x, int threads) {
  const PackedWeights& first = tasks.front().weights;
  F32Rows rows(first.shape, x, 0);
  multiply_spans(choose<ops::linear_f32_f32_any>(), tasks, rows, whole_groups(first, kFloatSpan), threads);
}

class F32Weights {
 public:
  explicit F32Weights(const F32Rows& x)
      : x_(x), decode_(choose<ops::decode_f32_any>()), multiply_(choose<ops::matmul_f32_f32_f32>()) {}

  int64_t rows() const { return x_.batch(); }
  int64_t span() const { return kF32Span; }
  int64_t sums_span() const { return 0; }
  // Whole steps: of the last inputs, as many are decoded as lie together.
  int64_t tile_bytes(int64_t inputs) const {
    return (inputs + kSpanStep - 1) / kSpanStep * kSpanStep * kBlockNeurons * int64_t{sizeof(float)};
  }

  int64_t decode(DecodedBlock& block, uint8_t* weights, uint8_t* scratch) const {
    block.tiles = weights;
    return decode_(block.span, reinterpret_cast<float*>(weights), scratch);
  }

  void multiply(const DecodedBlock& one, const DecodedBlock* two, int64_t row, int64_t rows) const {
    const auto weights = [](const DecodedBlock& block) { return reinterpret_cast<const float*>(block.tiles); };
    multiply_({{weights(one), two ? weights(*two) : nullptr},
               one.span.inputs,
               x_.view(row, rows, one.span.first),
               {one.sums_of(row), two ? two->sums_of(row) : nullptr}});
  }

 private:
  const F32Rows& x_;
  KernelOf<ops::decode_f32_any> decode_;
  KernelOf<ops::matmul_f32_f32_f32> multiply_;
};

void linear_f32_decoded(const PackedWeights& weights, const Activations& x, const Outputs& outputs, int threads) {
  F32Rows rows(weights.shape, x, kF32Span);
  make_ready(rows, threads);
  F32Weights decoded(rows);
  const BlockStore store_block;
  const auto store = [&](int64_t block, int64_t row, int64_t batch, float* totals) {
    store_parts(store_block, weights.shape, outputs, block, row, batch, 1, totals);
  };
  TileLoops(weights, decoded, threads, store).run();
}

// Whether one row of fp16 serves all matrices.
bool halves_alike(std::span<const LinearTask> tasks) {
  const PackedWeights& first = tasks.front().weights;
  return std::ranges::all_of(tasks, [&](const LinearTask& task) {
    return task.weights.half_exponent == first.half_exponent && task.weights.format.half_unit == first.format.half_unit;
  });
}

void linear_f16(std::span<const LinearTask> tasks, const Activations& x, int threads) {
  const PackedWeights& first = tasks.front().weights;
  HalfRows rows(first.shape, x, first.half_exponent, first.format.half_unit);
  multiply_spans(choose<ops::linear_f32_f16_any>(), tasks, rows, whole_groups(first, kFloatSpan), threads);
  linear_f32_rows(tasks, x, rows.bad_rows(), threads);
}

void linear_bf16(std::span<const LinearTask> tasks, const Activations& x, int threads) {
  const PackedWeights& first = tasks.front().weights;
  Bf16Rows rows(first.shape, x, Bf16Rows::rows);
  multiply_spans(choose<ops::linear_f32_bf16_any>(), tasks, rows, whole_groups(first, kFloatSpan), threads,
                 rows.parts());
}

// Groups' scales are multiplied into the tiles; a row's is applied to its sums.
class Bf16Tiles {
 public:
  Bf16Tiles(const PackedWeights& weights, const Bf16Rows& x)
      : x_(x),
        span_(whole_groups(weights, x.batch() <= kFewTileRows ? kShortSpan : kLongSpan)),
        folded_(weights.shape.groups > 1 || scales_first(weights.format)),
        scaled_(!folded_ && weights.format.scale != ScaleType::none),
        decode_(choose<ops::decode_bf16_any>()),
        multiply_(choose<ops::matmul_f32_bf16_bf16>()) {}

  int64_t rows() const { return x_.batch(); }
  int64_t span() const { return span_; }
  int64_t sums_span() const { return 0; }
  int64_t tile_bytes(int64_t inputs) const { return bf16_tile_bytes(inputs); }

  // Dense bf16 lies in memory as its tiles do.
  int64_t decode(DecodedBlock& block, uint8_t* tiles, uint8_t* scratch) const {
    const Format& format = *block.span.format;
    for (int i = 0; scaled_ && i < kBlockNeurons; ++i) {
      block.scales[i] = load_scale(format.scale, block.span.scales, i);
    }
    const bool as_it_lies = format.rounding == Rounding::bf16 && !block.span.mask && !folded_;
    block.tiles = as_it_lies ? block.span.packed : tiles;
    return as_it_lies ? 0 : decode_(block.span, folded_, reinterpret_cast<uint16_t*>(tiles), scratch);
  }

  void multiply(const DecodedBlock& one, const DecodedBlock* two, int64_t row, int64_t rows) const {
    const auto tiles = [](const DecodedBlock& block) { return reinterpret_cast<const uint16_t*>(block.tiles); };
    multiply_({{tiles(one), two ? tiles(*two) : nullptr},
               {scaled_ ? one.scales : nullptr, two && scaled_ ? two->scales : nullptr},
               (one.span.inputs + tile_inputs(16) - 1) / tile_inputs(16),
               x_.tiled(row, rows, one.span.first),
               {one.sums_of(row), two ? two->sums_of(row) : nullptr}});
  }

 private:
  const Bf16Rows& x_;
  int64_t span_;
  bool folded_, scaled_;
  KernelOf<ops::decode_bf16_any> decode_;
  KernelOf<ops::matmul_f32_bf16_bf16> multiply_;
};

void linear_bf16_tiles(const PackedWeights& weights, const Activations& x, const Outputs& outputs, int threads) {
  Bf16Rows rows(weights.shape, x, Bf16Rows::lots);
  make_ready(rows, threads);
  Bf16Tiles tiles(weights, rows);
  const BlockStore store_block;
  const auto store = [&](int64_t block, int64_t row, int64_t batch, float* totals) {
    store_parts(store_block, weights.shape, outputs, block, row, batch, rows.parts(), totals);
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

// Blocks decoded as they are multiplied with one or two lots. False, with nothing done, where the kernel does not take
// the weights.
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
    const AskForBlocks ask(weights_, step, x_.tiled(row_, rows_, 0));
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
    SpanWeights blocks[kBlocksAtOnce];
    float scales[kBlocksAtOnce][kBlockNeurons];
    for (int64_t i = 0; i < count; ++i) {
      blocks[i] = span_weights(weights_, first + i, 0, shape.cols, 0);
      for (int j = 0; scaled && j < kBlockNeurons; ++j) {
        scales[i][j] = load_scale(weights_.format.scale, blocks[i].scales, j);
      }
    }
    int64_t taken[kBlocksAtOnce] = {};
    float* totals = mine.totals_for(count * sums);
    const Bf16Blocks all = {blocks,
                            count,
                            in_pairs,
                            folded_,
                            scaled ? scales[0] : nullptr,
                            (shape.cols + tile_inputs(16) - 1) / tile_inputs(16),
                            x_.tiled(row_, rows_, 0),
                            totals};
    if (!kernel_(all, taken, mine.kernel_for(blocks_scratch_bytes(blocks[0].tiles)))) {
      refused_ = true;
      return;
    }
    for (int64_t i = 0; i < count; ++i) {
      if (taken[i] < 0 || !fits(shape, weights_.streams, first + i, taken[i])) changed_ = true;
    }
    store_parts(store_block_, shape, outputs_, first, row_, rows_, x_.parts(), totals, count, sums);
  }

  const PackedWeights& weights_;
  Bf16Rows& x_;
  int64_t row_, rows_;
  const Outputs& outputs_;
  KernelOf<ops::linear_f32_bf16_any_tiles> kernel_;
  BlockStore store_block_;
  bool folded_;
  std::atomic<bool> changed_{false}, refused_{false};
};

void linear_bf16_groups(const PackedWeights& weights, const Activations& x, const Outputs& outputs, int threads) {
  const bool as_given = weights.shape.blocks() <= kBlocksAsGiven * threads;
  Bf16Rows rows(weights.shape, x, as_given ? Bf16Rows::lots_or_given : Bf16Rows::lots);
  const GroupedLayer<Bf16Rows> layer = {weights, rows, weights.format.group, weights.shape.cols};
  const BlockStore store_block;
  const auto store = [&](int64_t block, int64_t row, int64_t batch, float* totals) {
    store_parts(store_block, weights.shape, outputs, block, row, batch, rows.parts(), totals);
  };
  if (!GroupLoops(layer, rows.batch(), store).run(threads)) linear_bf16_tiles(weights, x, outputs, threads);
}

void linear_bf16_pairs(const PackedWeights& weights, const Activations& x, const Outputs& outputs, int threads) {
  Bf16Rows rows(weights.shape, x, Bf16Rows::lots_or_given);
  for (int64_t row = 0; row < rows.batch(); row += kMostPairRows) {
    if (!Bf16Pairs(weights, rows, row, outputs).run(threads)) return linear_bf16_tiles(weights, x, outputs, threads);
  }
}

// Whether products of bf16 are there and precise enough.
bool takes_bf16(Real precision) { return precision != Real::f32 && find<ops::linear_f32_bf16_any>(); }

// The operation for activations that stay floats.
std::string_view way_of_floats(const PackedWeights& weights, int64_t batch, Real precision) {
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

// Rows up to which weights that are integers, and 4-bit codes that stand for some, are better multiplied with digits of
// integers: without zero points, with them, looked up, of more than four bits; then the same of sparse ones.
struct DigitRows {
  int64_t dense[4], sparse[4];
};

// With two digits, and with three. As timed on x86; on ARM as instructions are counted of three.
DigitRows digit_rows(Real precision) {
  const Isa isa = find<ops::linear_f32_i8_int>()->isa;
  const bool two = digits_of(float_digits(precision).mantissa) == 2;
  if (isa == Isa::portable) return {};
  if (isa == Isa::neon_dotprod || isa == Isa::neon_i8mm) return {{4, 4, 3, 4}, {4, 4, 2, 4}};
  if (isa == Isa::avx2 && find<ops::linear_f32_f32_any>()->isa != Isa::avx2) {  // floats are wider
    return two ? DigitRows{{2, 6, 2, 0}, {}} : DigitRows{{1, 2, 0, 0}, {}};
  }
  if (isa == Isa::avx2) return two ? DigitRows{{6, 6, 3, 1}, {3, 0, 2, 1}} : DigitRows{{2, 2, 2, 2}, {2, 0, 0, 2}};
  if (isa == Isa::avx512_vnni) {
    return two ? DigitRows{{16, 16, 16, 16}, {16, 3, 3, 0}} : DigitRows{{6, 6, 6, 2}, {2, 2, 0, 0}};
  }
  if (!takes_bf16(precision)) {
    return two ? DigitRows{{16, 16, 16, 16}, {16, 16, 4, 16}} : DigitRows{{6, 6, 6, 8}, {3, 3, 2, 8}};
  }
  if (!on_matrix_unit<ops::linear_f32_bf16_any_tiles>()) {
    return two ? DigitRows{{16, 16, 16, 16}, {16, 8, 4, 16}} : DigitRows{{16, 16, 16, 16}, {16, 16, 2, 16}};
  }
  return two ? DigitRows{{3, 4, 1, 3}, {4, 4, 3, 4}} : DigitRows{{5, 8, 4, 6}, {6, 3, 2, 4}};
}

int64_t few_digit_rows(const PackedWeights& weights, Real precision) {
  const Format& format = weights.format;
  const int kind = format.integers ? 2 : format.bits > 4 ? 3 : format.zero_point ? 1 : 0;
  const DigitRows rows = digit_rows(precision);
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

void linear_f32_rows(std::span<const LinearTask> tasks, const Activations& x, std::span<const int64_t> rows,
                     int threads) {
  for (const int64_t row : rows) {
    std::vector<LinearTask> of_row(tasks.begin(), tasks.end());
    for (auto& [weights, outputs] : of_row) outputs.y += row * weights.shape.rows * bytes_of(outputs.type);
    linear_f32(of_row, rows_of(x, tasks.front().weights.shape.cols, row, 1), threads);
  }
}

std::string_view float_way(const PackedWeights& weights, int64_t batch, Real precision) {
  if (batch_invariant()) return ops::matmul_f32_f32_f32::kName;
  if (digits_take(weights) && batch <= few_digit_rows(weights, precision)) return ops::linear_f32_i8_int::kName;
  // Sums of fp16 are not what is expected of float32.
  if (precision != Real::f32 && batch <= few_half_rows(weights) && halves_take(weights))
    return ops::linear_f32_f16_any::kName;
  return way_of_floats(weights, batch, precision);
}

void linear_float(const PackedWeights& weights, const Activations& x, std::string_view way, const Outputs& outputs,
                  int threads) {
  const LinearTask task = {weights, outputs};
  if (way == ops::linear_f32_i8_int::kName) {
    if (!digits_take(weights)) {
      throw std::invalid_argument(std::string(way) +
                                  " wants integer weights in 8-bit tiles, or 4-bit tables of integers in 16-bit ones");
    }
    linear_digits({&task, 1}, x, threads);
    return;
  }
  if (way == ops::linear_f32_f16_any::kName) {
    if (!halves_take(weights)) {
      throw std::invalid_argument(
          std::string(way) +
          " wants weights that fp16 holds, in 16-bit tiles and in groups of a multiple of 32 inputs");
    }
    return linear_f16({&task, 1}, x, threads);
  }
  if (way == ops::linear_f32_f32_any::kName) return linear_f32({&task, 1}, x, threads);
  if (way == ops::matmul_f32_f32_f32::kName) return linear_f32_decoded(weights, x, outputs, threads);
  if (way == ops::linear_f32_bf16_any::kName) return linear_bf16({&task, 1}, x, threads);
  if (way != ops::linear_f32_bf16_any_tiles::kName && way != ops::matmul_f32_bf16_bf16::kName &&
      way != ops::linear_f32_bf16_any_groups::kName) {
    refuse_way(
        "float",
        {ops::linear_f32_f32_any::kName, ops::linear_f32_i8_int::kName, ops::linear_f32_f16_any::kName,
         ops::linear_f32_bf16_any::kName, ops::linear_f32_bf16_any_tiles::kName, ops::linear_f32_bf16_any_groups::kName,
         ops::matmul_f32_f32_f32::kName, ops::matmul_f32_bf16_bf16::kName},
        way);
  }
  if (way == ops::linear_f32_bf16_any_groups::kName && !groups_take(weights)) {
    throw std::invalid_argument(
        std::string(way) + " wants codes of at most 6 bits, 4 with a zero point, in groups of a multiple of 32 inputs");
  }
  if (way == ops::linear_f32_bf16_any_tiles::kName) return linear_bf16_pairs(weights, x, outputs, threads);
  (way == ops::linear_f32_bf16_any_groups::kName ? linear_bf16_groups : linear_bf16_tiles)(weights, x, outputs,
                                                                                           threads);
}

bool linear_float_together(std::span<const LinearTask> tasks, const Activations& x, int threads) {
  const PackedWeights& first = tasks.front().weights;
  const std::string_view way = float_way(first, x.batch, x.precision);
  if (way == ops::linear_f32_i8_int::kName) {
    return std::ranges::all_of(tasks, [](const LinearTask& task) { return digits_take(task.weights); }) &&
           linear_digits(tasks, x, threads);
  }
  if (way != ops::linear_f32_f32_any::kName && way != ops::linear_f32_f16_any::kName &&
      way != ops::linear_f32_bf16_any::kName)
    return false;
  for (const auto& [weights, outputs] : tasks) {
    const bool same = weights.shape.cols == first.shape.cols &&
                      weights.shape.operand_bits == first.shape.operand_bits &&
                      whole_groups(weights, kFloatSpan) == whole_groups(first, kFloatSpan);
    if (!same || float_way(weights, x.batch, x.precision) != way) return false;
  }
  if (way == ops::linear_f32_f16_any::kName && !halves_alike(tasks)) return false;
  (way == ops::linear_f32_f16_any::kName   ? linear_f16
   : way == ops::linear_f32_f32_any::kName ? linear_f32
                                           : linear_bf16)(tasks, x, threads);
  return true;
}

}  // namespace tilepress
