// The loops of a linear layer: which thread multiplies which block of neurons with which span of inputs.
#pragma once

#include <atomic>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "dispatch/linear.h"
#include "dispatch/parallel.h"

namespace tilepress {

// One worker's memory, kept from call to call.
struct LinearScratch {
  // Cleared.
  float* totals_for(int64_t count) {
    float* all = grown(totals_, count);
    std::fill(all, all + count, 0.0f);
    return all;
  }
  uint8_t* kernel_for(int64_t bytes) { return grown(kernel_, bytes); }
  uint8_t* tiles_for(int64_t bytes) { return grown(tiles_, bytes); }

  // Of each of `count` workers that this thread calls.
  static std::vector<LinearScratch>& of_workers(int count) {
    static thread_local std::vector<LinearScratch> all;
    if (all.size() < static_cast<size_t>(count)) all.resize(static_cast<size_t>(count));
    return all;
  }

 private:
  template <class T>
  static T* grown(LineVector<T>& memory, int64_t count) {
    if (memory.size() < static_cast<size_t>(count)) memory.resize(static_cast<size_t>(count));
    return memory.data();
  }

  LineVector<float> totals_;
  LineVector<uint8_t> kernel_, tiles_;
};

inline SpanWeights span_weights(const PackedWeights& weights, int64_t block, int64_t first, int64_t inputs,
                                int64_t taken) {
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
  return {&weights.format, shape.operand_bits, first,       inputs, tiles, codes, mask, taken,
          limit,           groups.scales,      groups.zeros};
}

// Asks for a portion of what is read of the items from `item` to `item_end`, `step` blocks each, of each stream its
// part; false where that is more than a thread should ask for beforehand.
inline bool ask_for_blocks(const PackedWeights& weights, int64_t step, int64_t item, int64_t item_end,
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

// What parallel_after's threads ask memory for where `step` blocks are an item: their blocks of weights, and the
// activations that others have just made ready, all of them, as waiting for one tile after the other would take longer,
// and each thread from another line on, so that not all want the same at once.
struct AskForBlocks {
  AskForBlocks(const PackedWeights& weights, int64_t step, const void* activations, int64_t bytes)
      : weights(weights), step(step), activations(activations), bytes(bytes) {}
  AskForBlocks(const PackedWeights& weights, int64_t step, const TiledActivations& x)
      : AskForBlocks(weights, step, x.first, x.rows * x.lot_stride / kTileRows * int64_t{sizeof *x.first}) {}

  const PackedWeights& weights;
  int64_t step;
  const void* activations;
  int64_t bytes;

  bool before(int64_t item, int64_t end, int64_t portion) const {
    return ask_for_blocks(weights, step, item, end, portion);
  }
  // Inlined, or gcc leaves it out: it does nothing else.
  [[gnu::always_inline]] void after(int64_t worker, int64_t threads) const {
    const auto* from = static_cast<const uint8_t*>(activations);
    const int64_t first = bytes * worker / threads / kVectorBytes * kVectorBytes;
    for (int64_t at = first; at < bytes; at += kVectorBytes) __builtin_prefetch(from + at, 0, 2);
    for (int64_t at = 0; at < first; at += kVectorBytes) __builtin_prefetch(from + at, 0, 2);
  }
};

// So many blocks a kernel that takes several does at a time: a call costs as much as some tiles of weights.
inline constexpr int64_t kBlocksAtOnce = 8;

// y = totals * scale(row) + bias of the neurons of some blocks, in the type that is asked for.
class BlockStore {
 public:
  BlockStore();
  void operator()(const MatrixShape& shape, const Outputs& outputs, int64_t block, int64_t row, int64_t rows,
                  const float* totals, const float* scales, int64_t blocks = 1, int64_t block_stride = 0) const;

 private:
  KernelOf<ops::epilogue_fp_f32> kernel_;
};

// Throws std::invalid_argument with the ways that there are.
[[noreturn]] void refuse_way(const std::string& activations, std::initializer_list<std::string_view> ways,
                             std::string_view way);

// Multiplies every block of every task's matrix with every span of `span` inputs and `batch` rows of activations,
// adding up spans in order.
//   multiply(weights, row, rows, totals, scratch): what a linear kernel does, for activations from `row` on
//   store(task, block, row, rows, totals)
// Rows are the activations, which are converted first.
// A thread takes several blocks at a time through one span after another where there are many rows, so that those of
// the span stay in its cache. Where there are fewer blocks than threads, spans too are shared out.
template <class Rows, class Multiply, class Store>
class SpanLoops {
 public:
  SpanLoops(std::span<const LinearTask> tasks, Rows& x, int64_t span, int64_t batch, int threads,
            const Multiply& multiply, const Store& store)
      : tasks_(tasks),
        x_(x),
        span_(span),
        spans_((cols() + span - 1) / span),
        batch_(batch),
        threads_(threads),
        multiply_(multiply),
        store_(store),
        scratch_(LinearScratch::of_workers(threads)) {}

  void run() {
    int64_t blocks = 0;
    for (const LinearTask& task : tasks_) blocks += task.weights.shape.blocks();
    for (int64_t row = 0; row < batch_; row += kMostRows) {
      const int64_t rows = std::min(kMostRows, batch_ - row);
      if (blocks < threads_ && spans_ > 1) {
        make_ready(x_, threads_);
        for (const LinearTask& task : tasks_) run_split(task, row, rows);
      } else {
        run_shared(rows < kManyRows ? 1 : std::clamp<int64_t>(blocks / threads_, 1, kMostBlocks), row, rows);
      }
    }
    require_unchanged(changed_);
  }

 private:
  static constexpr int64_t kMostRows = 512, kManyRows = 17, kMostBlocks = 8;

  int64_t cols() const { return tasks_.front().weights.shape.cols; }

  // `together` blocks of one task are an item; this makes it one of that task's.
  const LinearTask& task_of(int64_t& item, int64_t together) const {
    const LinearTask* task = tasks_.data();
    for (; item >= items_of(*task, together); ++task) item -= items_of(*task, together);
    return *task;
  }
  static int64_t items_of(const LinearTask& task, int64_t together) {
    return (task.weights.shape.blocks() + together - 1) / together;
  }

  struct Ask {
    const SpanLoops& loops;
    int64_t together;

    bool before(int64_t item, int64_t end, int64_t portion) const {
      const int64_t items = end - item;
      const PackedWeights& weights = loops.task_of(item, together).weights;
      return ask_for_blocks(weights, together, item, item + items, portion);
    }
    static void after(int64_t, int64_t) {}  // rows are read from the first input on
  };

  // Blocks shared out, `together` of them at a time.
  void run_shared(int64_t together, int64_t row, int64_t rows) {
    int64_t count = 0;
    for (const LinearTask& task : tasks_) count += items_of(task, together);
    const Ask ask = {*this, together};
    parallel_after(x_, count, threads_, ask, [&](int worker, int64_t first, int64_t end) {
      for (; first < end; ++first) {
        int64_t item = first;
        const LinearTask& task = task_of(item, together);
        const int64_t last = std::min((item + 1) * together, task.weights.shape.blocks());
        run_blocks(worker, task, item * together, last, row, rows);
      }
    });
  }

  // Adds one block's product over one span to `totals`; returns the codes taken before the next span.
  int64_t add_span(int worker, const LinearTask& task, int64_t block, int64_t index, int64_t taken, int64_t row,
                   int64_t rows, float* totals) {
    const int64_t first = index * span_, inputs = std::min(span_, cols() - first);
    const SpanWeights weights = span_weights(task.weights, block, first, inputs, taken);
    uint8_t* scratch = scratch_[static_cast<size_t>(worker)].kernel_for(span_scratch_bytes(weights.tiles));
    const int64_t took = multiply_(weights, row, rows, totals, scratch);
    if (took < 0) changed_ = true;
    return taken + std::max<int64_t>(took, 0);
  }

  void check_end(const LinearTask& task, int64_t block, int64_t taken) {
    if (!fits(task.weights.shape, task.weights.streams, block, taken)) changed_ = true;
  }

  void run_blocks(int worker, const LinearTask& task, int64_t begin, int64_t end, int64_t row, int64_t rows) {
    const int64_t count = rows * kBlockNeurons;
    float* totals = scratch_[static_cast<size_t>(worker)].totals_for((end - begin) * count);
    int64_t taken[kMostBlocks] = {};
    for (int64_t index = 0; index < spans_; ++index) {
      for (int64_t block = begin; block < end; ++block) {
        int64_t& mine = taken[block - begin];
        mine = add_span(worker, task, block, index, mine, row, rows, totals + (block - begin) * count);
      }
    }
    for (int64_t block = begin; block < end; ++block) {
      check_end(task, block, taken[block - begin]);
      store_(task, block, row, rows, totals + (block - begin) * count);
    }
  }

  // Each span of each block on its own; then their sums, in order.
  void run_split(const LinearTask& task, int64_t row, int64_t rows) {
    const int64_t blocks = task.weights.shape.blocks(), count = rows * kBlockNeurons;
    LineVector<float> parts(static_cast<size_t>(blocks * spans_ * count));
    parallel_for(blocks * spans_, threads_, [&](int worker, int64_t item) {
      const int64_t block = item / spans_, index = item % spans_, before = taken_before(task, block, index);
      const int64_t after = add_span(worker, task, block, index, before, row, rows, parts.data() + item * count);
      if (index == spans_ - 1) check_end(task, block, after);
    });
    parallel_for(blocks, threads_, [&](int worker, int64_t block) {
      float* totals = scratch_[static_cast<size_t>(worker)].totals_for(count);
      for (int64_t index = 0; index < spans_; ++index) {
        const float* part = parts.data() + (block * spans_ + index) * count;
        for (int64_t i = 0; i < count; ++i) totals[i] += part[i];
      }
      store_(task, block, row, rows, totals);
    });
  }

  int64_t taken_before(const LinearTask& task, int64_t block, int64_t index) const {
    const MatrixShape& shape = task.weights.shape;
    if (!shape.sparse) return 0;
    const int64_t tiles = index * span_ / shape.inputs();
    return count_bits(block_mask_at(shape, task.weights.streams, block), tiles * tile_mask_bytes(shape.operand_bits));
  }

  std::span<const LinearTask> tasks_;
  Rows& x_;
  int64_t span_, spans_, batch_;
  int threads_;
  const Multiply& multiply_;
  const Store& store_;
  std::vector<LinearScratch>& scratch_;
  std::atomic<bool> changed_{false};
};

}  // namespace tilepress
