// The loops of a linear layer: which thread multiplies which block of neurons with which K-panel of inputs.
#pragma once

#include <atomic>
#include <vector>

#include "dispatch/linear.h"
#include "dispatch/parallel.h"
#include "dispatch/registry.h"

namespace tilepress {

// One worker's memory, reused from call to call.
struct LinearScratch {
  // Cleared.
  float* accumulators_for(int64_t count) {
    float* all = with_room(accumulators_, count);
    std::fill(all, all + count, 0.0f);
    return all;
  }
  float* sums_for(int64_t count) { return with_room(accumulators_, count); }  // not cleared
  uint8_t* kernel_for(int64_t bytes) { return with_room(kernel_, bytes); }
  uint8_t* tiles_for(int64_t bytes) { return with_room(tiles_, bytes); }

  // Of each of `count` workers that this thread calls.
  static std::vector<LinearScratch>& of_workers(int count) {
    static thread_local std::vector<LinearScratch> all;
    if (all.size() < static_cast<size_t>(count)) all.resize(static_cast<size_t>(count));
    return all;
  }

 private:
  LineVector<float> accumulators_;
  LineVector<uint8_t> kernel_, tiles_;
};

inline KPanel k_panel_of(const PackedWeights& weights, int64_t block, int64_t first, int64_t inputs, int64_t consumed) {
  const MatrixShape& shape = weights.shape;
  const Streams& streams = weights.streams;
  const int64_t tile = first / shape.inputs(), tiles = (inputs + shape.inputs() - 1) / shape.inputs();
  const GroupScales groups = scales_at(shape, streams, block, 0, true);
  const uint8_t* codes = block_codes_at(shape, streams, block);
  const uint8_t* mask = block_mask_at(shape, streams, block);
  int64_t limit = 0;
  if (mask) {
    limit = (streams.offsets[block + 1] - streams.offsets[block]) * 8 / shape.bits;
    mask += tile * tile_mask_bytes(shape.operand_bits);
  } else {
    codes += tile * tile_code_bytes(shape.bits, shape.operand_bits);
  }
  return {&weights.format, shape.operand_bits, first,       inputs, tiles, codes, mask, consumed,
          limit,           groups.scales,      groups.zeros};
}

// Prefetches a portion of what the items from `item` to `item_end` read, `step` blocks each; false where a thread has
// prefetched enough.
inline bool prefetch_blocks(const PackedWeights& weights, int64_t step, int64_t item, int64_t item_end,
                            int64_t portion) {
  constexpr int64_t kPortion = 1024, kMost = 128 * 1024;  // bytes of codes
  const MatrixShape& shape = weights.shape;
  const Streams& streams = weights.streams;
  const int64_t begin = step * item, end = std::min(step * item_end, shape.blocks());
  const uint8_t* codes = block_codes_at(shape, streams, begin);
  const int64_t bytes = block_codes_at(shape, streams, end) - codes, count = (bytes + kPortion - 1) / kPortion;
  if (portion >= std::min(count, kMost / kPortion)) return false;
  const auto ask = [&](const void* stream, int64_t size) {
    if (!stream) return;
    const auto* from = static_cast<const uint8_t*>(stream);
    for (int64_t at = size * portion / count; at < size * (portion + 1) / count; at += kVectorBytes) {
      __builtin_prefetch(from + at, 0, 2);
    }
  };
  ask(codes, bytes);
  ask(block_mask_at(shape, streams, begin), (end - begin) * shape.block_mask_bytes());
  ask(scales_at(shape, streams, begin, 0, true).scales,
      (end - begin) * shape.groups * kBlockNeurons * shape.scale_bytes);
  return true;
}

// What parallel_after's threads prefetch where `step` blocks are an item: their blocks of weights, and all activations
// that others have just prepared. Each thread starts at another line, so that not all read the same at once.
struct BlockPrefetch {
  BlockPrefetch(const PackedWeights& weights, int64_t step, const void* activations, int64_t bytes)
      : weights(weights), step(step), activations(activations), bytes(bytes) {}
  BlockPrefetch(const PackedWeights& weights, int64_t step, const TiledActivations& x)
      : BlockPrefetch(weights, step, x.first, x.rows * x.row_panel_stride / kTileRows * int64_t{sizeof *x.first}) {}

  const PackedWeights& weights;
  int64_t step;
  const void* activations;
  int64_t bytes;

  bool before(int64_t item, int64_t end, int64_t portion) const {
    return prefetch_blocks(weights, step, item, end, portion);
  }
  // Inlined, or gcc leaves it out: it does nothing else.
  [[gnu::always_inline]] void after(int64_t worker, int64_t threads) const {
    const auto* from = static_cast<const uint8_t*>(activations);
    const int64_t first = bytes * worker / threads / kVectorBytes * kVectorBytes;
    for (int64_t at = first; at < bytes; at += kVectorBytes) __builtin_prefetch(from + at, 0, 2);
    for (int64_t at = 0; at < first; at += kVectorBytes) __builtin_prefetch(from + at, 0, 2);
  }
};

// Blocks per kernel call, of kernels that take several: amortises call overhead.
inline constexpr int64_t kBlocksAtOnce = 8;

// y = totals * scale(row) + bias of the neurons of some blocks, in the outputs' type.
class Epilogue {
 public:
  Epilogue();
  void operator()(const MatrixShape& shape, const Outputs& outputs, int64_t block, int64_t row, int64_t rows,
                  const float* accumulators, const float* scales, int64_t blocks = 1, int64_t block_stride = 0) const;

 private:
  KernelOf<ops::epilogue_fp_f32> kernel_;
};

// Multiplies every block of every problem's matrix with `batch` rows of activations, K-panel by K-panel of `k_panel`
// inputs, and adds K-panels in order. Rows are the activations, which are prepared first.
//   multiply(weights, row, rows, totals, scratch): what a linear kernel does, for activations from `row` on
//   store(problem, block, row, rows, totals)
// Many rows: a thread takes several blocks through each K-panel, whose activations stay in its cache. Fewer blocks than
// threads: K-panels are shared out too.
template <class Rows, class Multiply, class Store>
class KPanelLoops {
 public:
  KPanelLoops(std::span<const LinearProblem> problems, Rows& x, int64_t k_panel, int64_t batch, int threads,
              const Multiply& multiply, const Store& store)
      : problems_(problems),
        x_(x),
        k_panel_(k_panel),
        k_panels_((cols() + k_panel - 1) / k_panel),
        batch_(batch),
        threads_(threads),
        multiply_(multiply),
        store_(store),
        scratch_(LinearScratch::of_workers(threads)) {}

  void run() {
    int64_t blocks = 0;
    for (const LinearProblem& problem : problems_) blocks += problem.weights.shape.blocks();
    for (int64_t row = 0; row < batch_; row += kMostRows) {
      const int64_t rows = std::min(kMostRows, batch_ - row);
      if (blocks < threads_ && k_panels_ > 1) {
        prepare(x_, threads_);
        for (const LinearProblem& problem : problems_) run_split(problem, row, rows);
      } else {
        run_shared(rows < kManyRows ? 1 : std::clamp<int64_t>(blocks / threads_, 1, kMostBlocks), row, rows);
      }
    }
    require_unchanged(changed_);
  }

 private:
  static constexpr int64_t kMostRows = 512, kManyRows = 17, kMostBlocks = 8;

  int64_t cols() const { return problems_.front().weights.shape.cols; }

  // An item is `together` blocks of one problem. Makes `item` an index within its problem.
  const LinearProblem& problem_of(int64_t& item, int64_t together) const {
    const LinearProblem* problem = problems_.data();
    for (; item >= items_of(*problem, together); ++problem) item -= items_of(*problem, together);
    return *problem;
  }
  static int64_t items_of(const LinearProblem& problem, int64_t together) {
    return (problem.weights.shape.blocks() + together - 1) / together;
  }

  struct Prefetch {
    const KPanelLoops& loops;
    int64_t together;

    bool before(int64_t item, int64_t end, int64_t portion) const {
      const int64_t items = end - item;
      const PackedWeights& weights = loops.problem_of(item, together).weights;
      return prefetch_blocks(weights, together, item, item + items, portion);
    }
    static void after(int64_t, int64_t) {}  // rows are read from the first input on
  };

  // Blocks shared out, `together` of them at a time.
  void run_shared(int64_t together, int64_t row, int64_t rows) {
    int64_t count = 0;
    for (const LinearProblem& problem : problems_) count += items_of(problem, together);
    const Prefetch ask = {*this, together};
    parallel_after(x_, count, threads_, ask, [&](int worker, int64_t first, int64_t end) {
      for (; first < end; ++first) {
        int64_t item = first;
        const LinearProblem& problem = problem_of(item, together);
        const int64_t last = std::min((item + 1) * together, problem.weights.shape.blocks());
        run_blocks(worker, problem, item * together, last, row, rows);
      }
    });
  }

  // Adds one block's product over one K-panel to `accumulators`; returns the codes taken before the next K-panel.
  int64_t add_k_panel(int worker, const LinearProblem& problem, int64_t block, int64_t index, int64_t consumed,
                      int64_t row, int64_t rows, float* accumulators) {
    const int64_t first = index * k_panel_, inputs = std::min(k_panel_, cols() - first);
    const KPanel weights = k_panel_of(problem.weights, block, first, inputs, consumed);
    uint8_t* scratch = scratch_[static_cast<size_t>(worker)].kernel_for(k_panel_scratch_bytes(weights.tiles));
    const int64_t took = multiply_(weights, row, rows, accumulators, scratch);
    if (took < 0) changed_ = true;
    return consumed + std::max<int64_t>(took, 0);
  }

  void check_end(const LinearProblem& problem, int64_t block, int64_t consumed) {
    if (!fits(problem.weights.shape, problem.weights.streams, block, consumed)) changed_ = true;
  }

  void run_blocks(int worker, const LinearProblem& problem, int64_t begin, int64_t end, int64_t row, int64_t rows) {
    const int64_t count = rows * kBlockNeurons;
    float* accumulators = scratch_[static_cast<size_t>(worker)].accumulators_for((end - begin) * count);
    int64_t consumed[kMostBlocks] = {};
    for (int64_t index = 0; index < k_panels_; ++index) {
      for (int64_t block = begin; block < end; ++block) {
        int64_t& mine = consumed[block - begin];
        mine = add_k_panel(worker, problem, block, index, mine, row, rows, accumulators + (block - begin) * count);
      }
    }
    for (int64_t block = begin; block < end; ++block) {
      check_end(problem, block, consumed[block - begin]);
      store_(problem, block, row, rows, accumulators + (block - begin) * count);
    }
  }

  // Each K-panel of each block on its own; then their sums, in order.
  void run_split(const LinearProblem& problem, int64_t row, int64_t rows) {
    const int64_t blocks = problem.weights.shape.blocks(), count = rows * kBlockNeurons;
    LineVector<float> parts(static_cast<size_t>(blocks * k_panels_ * count));
    parallel_for(blocks * k_panels_, threads_, [&](int worker, int64_t item) {
      const int64_t block = item / k_panels_, index = item % k_panels_, before = consumed_before(problem, block, index);
      const int64_t after = add_k_panel(worker, problem, block, index, before, row, rows, parts.data() + item * count);
      if (index == k_panels_ - 1) check_end(problem, block, after);
    });
    parallel_for(blocks, threads_, [&](int worker, int64_t block) {
      float* accumulators = scratch_[static_cast<size_t>(worker)].accumulators_for(count);
      for (int64_t index = 0; index < k_panels_; ++index) {
        const float* part = parts.data() + (block * k_panels_ + index) * count;
        for (int64_t i = 0; i < count; ++i) accumulators[i] += part[i];
      }
      store_(problem, block, row, rows, accumulators);
    });
  }

  int64_t consumed_before(const LinearProblem& problem, int64_t block, int64_t index) const {
    const MatrixShape& shape = problem.weights.shape;
    if (!shape.sparse) return 0;
    const int64_t tiles = index * k_panel_ / shape.inputs();
    return count_bits(block_mask_at(shape, problem.weights.streams, block),
                      tiles * tile_mask_bytes(shape.operand_bits));
  }

  std::span<const LinearProblem> problems_;
  Rows& x_;
  int64_t k_panel_, k_panels_, batch_;
  int threads_;
  const Multiply& multiply_;
  const Store& store_;
  std::vector<LinearScratch>& scratch_;
  std::atomic<bool> changed_{false};
};

}  // namespace tilepress
