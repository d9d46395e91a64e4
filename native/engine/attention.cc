#include "engine/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "dispatch/checks.h"
#include "dispatch/parallel.h"

namespace tilepress {
namespace {

constexpr int64_t kTileQueries = 36;  // of a task: scores of a group fit the first cache

int64_t tile_rows(const AttentionHeads& heads) { return std::max<int64_t>(1, kTileQueries / heads.shared()); }
int64_t tile_queries(const AttentionHeads& heads) { return tile_rows(heads) * heads.shared(); }

// The first token that one sees.
int64_t first_seen(const AttentionHeads& heads, int64_t token) {
  return heads.window ? std::max<int64_t>(0, token - heads.window + 1) : 0;
}

// Outputs as attend_f32_f32_fp_pages leaves them, [count, dim + 2]: `more`, of later tokens, into `sum`.
void merge(float* sum, const float* more, int64_t count, int64_t dim) {
  for (int64_t i = 0; i < count; ++i, sum += dim + 2, more += dim + 2) {
    const float largest = std::max(sum[dim], more[dim]);
    const float factor = std::exp(sum[dim] - largest), factor_of_more = std::exp(more[dim] - largest);
    for (int64_t j = 0; j < dim; ++j) sum[j] = sum[j] * factor + more[j] * factor_of_more;
    sum[dim] = largest;
    sum[dim + 1] = sum[dim + 1] * factor + more[dim + 1] * factor_of_more;
  }
}

// The output of one head from all its tokens; `sink` may be null.
void finish(const float* sum, int64_t dim, const float* sink, float* out) {
  const float largest = sink ? std::max(sum[dim], *sink) : sum[dim];
  const float factor = std::exp(sum[dim] - largest);
  const float total = sum[dim + 1] * factor + (sink ? std::exp(*sink - largest) : 0.0f);
  for (int64_t j = 0; j < dim; ++j) out[j] = sum[j] * factor / total;
}

}  // namespace

// One thread's work on a task.
class PagedAttention::Worker {
 public:
  Worker(const PagePool& pool, int64_t layer, const AttentionHeads& heads, const float* queries, float* out)
      : pool_(pool), layer_(layer), heads_(heads), queries_(queries), out_(out) {}

  static void prepare(const AttentionHeads& heads, Scratch& scratch) {
    const size_t queries = size(tile_queries(heads));
    const size_t floats = queries * size(heads.head_dim + kGroupTokens + 2 * (heads.head_dim + 2));
    scratch.floats.resize(std::max(scratch.floats.size(), floats));
    scratch.seen.resize(std::max(scratch.seen.size(), queries));
  }

  void run(const Task& task, Scratch& scratch, float* states) const {
    const int64_t dim = heads_.head_dim, most = tile_queries(heads_), count = task.rows * heads_.shared();
    float *queries = scratch.floats.data(), *weights = queries + most * dim, *more = weights + most * kGroupTokens;
    float* sum = task.state < 0 ? more + most * (dim + 2) : states + task.state * most * (dim + 2);
    gather(task, queries);
    attend(task, task.group, queries, scratch.seen.data(), weights, sum);
    for (int64_t group = task.group + 1; group < task.group + task.groups; ++group) {
      attend(task, group, queries, scratch.seen.data(), weights, more);
      merge(sum, more, count, dim);
    }
    if (task.state < 0) store(task, sum);
  }

  // Of a task whose groups were others' tasks.
  void put_together(const Task& whole, float* states) const {
    const int64_t dim = heads_.head_dim, stride = tile_queries(heads_) * (dim + 2);
    float* sum = states + whole.state * stride;
    for (int64_t i = 1; i < whole.groups; ++i) merge(sum, sum + i * stride, whole.rows * heads_.shared(), dim);
    store(whole, sum);
  }

 private:
  void gather(const Task& task, float* to) const {
    const int64_t values = heads_.shared() * heads_.head_dim;
    for (int64_t row = 0; row < task.rows; ++row, to += values) {
      const float* from = queries_ + ((task.row + row) * heads_.kv_heads + task.head) * values;
      for (int64_t i = 0; i < values; ++i) to[i] = from[i] * heads_.scaling;
    }
  }

  void attend(const Task& task, int64_t group, const float* queries, SeenTokens* seen, float* weights,
              float* out) const {
    const Sequence& sequence = *task.sequence;
    const int64_t token = sequence.start + task.row - sequence.row, before = group * kGroupTokens;
    const int64_t count = task.rows * heads_.shared();
    const auto in_group = [&](int64_t one) { return std::clamp<int64_t>(one - before, 0, kGroupTokens); };
    for (int64_t i = 0; i < count; ++i) {
      const int64_t own = token + i / heads_.shared();
      seen[i] = {in_group(first_seen(heads_, own)), in_group(own + 1)};
    }
    const int64_t page = before / pool_.page_tokens(), tokens = std::min(token + task.rows - before, kGroupTokens);
    const int64_t pages = (tokens + pool_.page_tokens() - 1) / pool_.page_tokens();
    pool_.attend(
        {layer_, task.head, sequence.pages.subspan(size(page), size(pages)), queries, seen, count, heads_.softcap},
        weights, out);
  }

  void store(const Task& task, const float* sum) const {
    const int64_t dim = heads_.head_dim, shared = heads_.shared();
    for (int64_t i = 0; i < task.rows * shared; ++i, sum += dim + 2) {
      const int64_t head = task.head * shared + i % shared;
      const float* sink = heads_.sinks ? heads_.sinks + head : nullptr;
      finish(sum, dim, sink, out_ + ((task.row + i / shared) * heads_.heads + head) * dim);
    }
  }

  const PagePool& pool_;
  int64_t layer_;
  const AttentionHeads& heads_;
  const float* queries_;
  float* out_;
};

// The last rows first: they see most tokens, and threads end together if what comes last is short.
void PagedAttention::plan(const AttentionHeads& heads, std::span<const Sequence> sequences) {
  tasks_.clear();
  const int64_t most = tile_rows(heads);
  for (const Sequence& sequence : sequences) {
    for (int64_t first = (sequence.count - 1) / most * most; first >= 0; first -= most) {
      const int64_t rows = std::min(most, sequence.count - first), token = sequence.start + first;
      const int64_t group = first_seen(heads, token) / kGroupTokens;
      const int64_t groups = (token + rows + kGroupTokens - 1) / kGroupTokens - group;
      for (int64_t head = 0; head < heads.kv_heads; ++head) {
        tasks_.push_back({&sequence, head, sequence.row + first, rows, group, groups, -1});
      }
    }
  }
}

// Where tasks are few, a task for each group.
void PagedAttention::divide(int64_t state_size, int threads) {
  constexpr int64_t kMostFloats = int64_t{1} << 22;
  whole_.clear();
  int64_t states = 0;
  for (const Task& task : tasks_) states += task.groups > 1 ? task.groups : 0;
  if (tasks_.size() >= 4 * static_cast<size_t>(threads) || threads == 1 || states * state_size > kMostFloats) return;
  std::vector<Task> divided;
  int64_t state = 0;
  for (Task task : tasks_) {
    if (task.groups == 1) {
      divided.push_back(task);
      continue;
    }
    task.state = state;
    whole_.push_back(task);
    for (int64_t i = 0; i < task.groups; ++i) {
      divided.push_back({task.sequence, task.head, task.row, task.rows, task.group + i, 1, state++});
    }
  }
  tasks_.swap(divided);
  if (states_.size() < size(states * state_size)) states_.resize(size(states * state_size));
}

void PagedAttention::attend(const PagePool& pool, int64_t layer, const AttentionHeads& heads,
                            std::span<const Sequence> sequences, const float* queries, float* out, int threads) {
  plan(heads, sequences);
  divide(tile_queries(heads) * (heads.head_dim + 2), threads);
  const Worker worker(pool, layer, heads, queries, out);
  scratch_.resize(std::max(scratch_.size(), static_cast<size_t>(threads)));
  for (Scratch& mine : scratch_) Worker::prepare(heads, mine);
  parallel_for(static_cast<int64_t>(tasks_.size()), threads, [&](int id, int64_t item) {
    worker.run(tasks_[size(item)], scratch_[static_cast<size_t>(id)], states_.data());
  });
  parallel_for(static_cast<int64_t>(whole_.size()), threads,
               [&](int, int64_t item) { worker.put_together(whole_[size(item)], states_.data()); });
}

}  // namespace tilepress
