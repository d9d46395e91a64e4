// Attention over a sparse store. Decoding: one token of all heads at once, its context divided into segments for the
// threads. A prompt: page after page, each token of a page sees it open. Either way every query goes through the same
// segments, reduced in their order, so that neither threads nor calls change a bit.
//
// Heads are counted over all sequences: head = sequence * heads + KV head.
#include <cmath>
#include <limits>

#include "dispatch/checks.h"
#include "dispatch/kv_sparse_store.h"
#include "dispatch/parallel.h"
#include "dispatch/registry.h"
#include "tilepress/elementwise.h"

namespace tilepress {
namespace {

constexpr int64_t kSegment = 512;    // tokens: large, so that reduction is cheap; small, so that threads end together
constexpr int64_t kPanelTokens = 4;  // of a prompt, whose queries read keys and values once
constexpr float kLeast = -std::numeric_limits<float>::infinity();

// One thread where waking others takes longer than so many values.
int threads_for(int64_t values, int threads) { return values < 1 << 14 ? 1 : threads; }
int64_t segments_of(int64_t tokens) { return (tokens + kSegment - 1) / kSegment; }

// Queries that read a head's keys and values together.
struct Rows {
  std::vector<float> queries;    // [rows, channels], scaled
  std::vector<int64_t> lengths;  // tokens up to each one's own

  int64_t count() const { return static_cast<int64_t>(lengths.size()); }
};

// What a segment gives to each row: Σ e^(score - largest) * value, Σ e^(score - largest), and the largest score.
struct Partial {
  float *out, *sums, *largest;  // [rows, channels], [rows], [rows]
};

}  // namespace

class SparseAttention {
 public:
  SparseAttention(SparseKvStore& store, const KvStep& step)
      : store_(store),
        step_(step),
        batch_(store.sizes().batch),
        heads_(store.sizes().heads),
        channels_(store.sizes().channels),
        rows_(step.queries ? step.query_heads / heads_ : 0) {}

  // One token of every sequence.
  void decode(int threads) {
    const int64_t all = batch_ * heads_;
    std::vector<Rows> rows(size(all));
    parallel_for(all, threads_for(all * channels_ * (2 + rows_), threads), [&](int, int64_t head) {
      if (!stores(head)) return;
      append(head / heads_, head % heads_, 0, length(head));
      if (rows_) rows[size(head)] = rows_of(head, {0}, length(head));
    });
    if (rows_) attend_segments(rows, threads);
    std::vector<int64_t> full;
    for (int64_t i = 0; i < batch_; ++i) {
      if (step_.stores(i, 0) && (store_.length(i) + 1) % kSparseTokens == 0) full.push_back(i);
    }
    close(full, threads);
    for (int64_t i = 0; i < batch_; ++i) store_.lengths_[size(i)] += step_.stores(i, 0);
  }

  // Tokens of every sequence, page after page.
  void prefill(int threads) {
    for (int64_t sequence = 0; sequence < batch_; ++sequence) {
      std::vector<int64_t> tokens;
      for (int64_t i = 0; i < step_.count; ++i) {
        step_.stores(sequence, i) ? tokens.push_back(i) : clear_token(sequence, i);
        const int64_t length = store_.length(sequence) + static_cast<int64_t>(tokens.size());
        if (tokens.empty() || (length % kSparseTokens && i + 1 < step_.count)) continue;
        attend_page(sequence, tokens, threads);
        tokens.clear();
      }
    }
  }

 private:
  int64_t length(int64_t head) const { return store_.length(head / heads_); }
  bool stores(int64_t head) const { return step_.stores(head / heads_, 0); }

  // Segments of which no query of `length` tokens or more sees anything.
  int64_t unseen_segments(int64_t length) const { return store_.first_seen(length) / kSegment; }

  float* out(int64_t head, int64_t row, int64_t token) const {
    return step_.out + ((head * rows_ + row) * step_.count + token) * channels_;
  }
  void clear(int64_t head, int64_t token) const {
    for (int64_t row = 0; row < rows_; ++row) std::fill_n(out(head, row, token), channels_, 0.0f);
  }
  void clear_token(int64_t sequence, int64_t token) const {
    for (int64_t head = 0; head < heads_; ++head) clear(sequence * heads_ + head, token);
  }

  // Decoding: all heads × segments in parallel, then the reduction of each head.
  void attend_segments(const std::vector<Rows>& rows, int threads) {
    const int64_t all = batch_ * heads_;
    const auto [shortest, longest] = std::minmax_element(store_.lengths_.begin(), store_.lengths_.end());
    const int64_t unseen = unseen_segments(*shortest + 1), segments = segments_of(*longest + 1) - unseen;
    float* memory = partials_for(all * segments, rows_);
    parallel_for(all * segments, threads, [&](int, int64_t item) {
      const int64_t head = item / segments, segment = unseen + item % segments;
      if (stores(head)) attend_segment(head, segment, rows[size(head)], partial(memory, item, rows_));
    });
    parallel_for(all, threads_for(all * segments * rows_ * channels_, threads), [&](int, int64_t head) {
      if (!stores(head)) return clear(head, 0);
      const int64_t count = segments_of(length(head) + 1) - unseen;
      for (int64_t row = 0; row < rows_; ++row) {
        reduce(count, row, sink(head, row), out(head, row, 0),
               [&](int64_t s) { return partial(memory, head * segments + s, rows_); });
      }
    });
  }

  // Tokens of the step that are in one page of a sequence.
  void attend_page(int64_t sequence, const std::vector<int64_t>& tokens, int threads) {
    const int64_t before = store_.length(sequence), count = static_cast<int64_t>(tokens.size()), after = before + count;
    parallel_for(heads_, threads, [&](int, int64_t head) {
      for (int64_t i = 0; i < count; ++i) append(sequence, head, tokens[size(i)], before + i);
    });
    const int64_t panels = rows_ ? (count + kPanelTokens - 1) / kPanelTokens : 0;
    parallel_for(heads_ * panels, threads, [&](int, int64_t item) {
      const int64_t first = item % panels * kPanelTokens, last = std::min(first + kPanelTokens, count);
      const auto begin = tokens.begin();
      attend_panel(sequence * heads_ + item / panels, {begin + first, begin + last}, before + first);
    });
    if (after % kSparseTokens == 0) close({sequence}, threads);
    store_.lengths_[size(sequence)] = after;
  }

  // Prunes and closes the open pages of some sequences, whose lengths do not count this step's tokens yet.
  void close(const std::vector<int64_t>& sequences, int threads) {
    const int64_t parts = 2 * static_cast<int64_t>(sequences.size());
    parallel_for(parts * kSparseTokens, threads, [&](int, int64_t item) {
      const int64_t part = item / kSparseTokens;
      store_.prune(sequences[size(part / 2)], static_cast<int>(part % 2), item % kSparseTokens);
    });
    parallel_for(parts, threads, [&](int, int64_t part) {
      const int64_t sequence = sequences[size(part / 2)];
      store_.close(sequence, store_.length(sequence) / kSparseTokens, static_cast<int>(part % 2));
    });
  }

  void append(int64_t sequence, int64_t head, int64_t token, int64_t length) {
    const int64_t at = ((sequence * heads_ + head) * step_.count + token) * channels_;
    store_.append(sequence, head, length, step_.keys + at, step_.values + at);
  }

  // Queries of some tokens, of the query heads that share a head; `length`: tokens before the first.
  Rows rows_of(int64_t head, const std::vector<int64_t>& tokens, int64_t length) const {
    Rows rows;
    for (int64_t token : tokens) {
      ++length;
      for (int64_t row = 0; row < rows_; ++row) {
        const float* from = step_.queries + ((head * rows_ + row) * step_.count + token) * channels_;
        for (int64_t i = 0; i < channels_; ++i) rows.queries.push_back(from[i] * step_.scaling);
        rows.lengths.push_back(length);
      }
    }
    return rows;
  }

  void attend_panel(int64_t head, const std::vector<int64_t>& tokens, int64_t length) {
    const Rows rows = rows_of(head, tokens, length);
    const int64_t count = rows.count(), unseen = unseen_segments(rows.lengths.front());
    const int64_t segments = segments_of(rows.lengths.back()) - unseen;
    float* memory = partials_for(segments, count);
    for (int64_t s = 0; s < segments; ++s) attend_segment(head, unseen + s, rows, partial(memory, s, count));
    for (int64_t row = 0; row < count; ++row) {
      reduce(segments_of(rows.lengths[size(row)]) - unseen, row, sink(head, row % rows_),
             out(head, row % rows_, tokens[size(row / rows_)]), [&](int64_t s) { return partial(memory, s, count); });
    }
  }

  int64_t partial_size(int64_t rows) const { return rows * (channels_ + 2); }
  // The calling thread keeps the memory for its next call: touching new memory costs more than computing scores.
  float* partials_for(int64_t segments, int64_t rows) const {
    static thread_local std::vector<float> memory;
    memory.resize(std::max(memory.size(), size(segments * partial_size(rows))));
    return memory.data();
  }
  Partial partial(float* memory, int64_t index, int64_t rows) const {
    float *out = memory + index * partial_size(rows), *sums = out + rows * channels_;
    return {out, sums, sums + rows};
  }

  void attend_segment(int64_t head, int64_t segment, const Rows& rows, const Partial& to) {
    static thread_local std::vector<float> scores;
    const int64_t count = rows.count(), begin = segment * kSegment;
    const int64_t first = std::max(begin, store_.first_seen(rows.lengths.front())) / kSparseTokens;
    const int64_t longest = rows.lengths.back(), end = std::min(longest, begin + kSegment);
    const int64_t last = (end + kSparseTokens - 1) / kSparseTokens, open = (longest - 1) / kSparseTokens;
    const auto units = [&](int64_t page, int part) {
      return store_.units(head / heads_, head % heads_, page, part, page == open);
    };
    scores.assign(size(count * kSegment), 0.0f);
    std::fill_n(to.out, partial_size(count), 0.0f);
    for (int64_t page = first; page < last; ++page) {
      multiply_(units(page, 0), {rows.queries.data(), count, channels_}, scores.data() + page * kSparseTokens - begin,
                kSegment);
    }
    for (int64_t row = 0; row < count; ++row) {
      softmax(scores.data() + row * kSegment, begin, rows.lengths[size(row)], row, to);
    }
    for (int64_t page = first; page < last; ++page) {
      multiply_(units(page, 1), {scores.data() + page * kSparseTokens - begin, count, kSegment}, to.out, channels_);
    }
  }

  // Scores of a segment, which begins at token `begin`, to weights; 0 for tokens that a query at `length` does not see.
  void softmax(float* scores, int64_t begin, int64_t length, int64_t row, const Partial& to) const {
    const int64_t first = std::clamp<int64_t>(store_.first_seen(length) - begin, 0, kSegment);
    const int64_t last = std::clamp<int64_t>(length - begin, first, kSegment);
    std::fill(scores, scores + first, 0.0f);
    std::fill(scores + last, scores + kSegment, 0.0f);
    if (step_.softcap != 0) cap_(scores + first, last - first, step_.softcap);
    to.largest[row] = max_(scores + first, last - first);
    to.sums[row] = softmax_(scores + first, last - first, to.largest[row]);
  }

  // The score of no value in the softmax of a query head; without one, it has no weight.
  float sink(int64_t head, int64_t row) const {
    return step_.sinks ? step_.sinks[head % heads_ * rows_ + row] : kLeast;
  }

  template <class Partials>
  void reduce(int64_t segments, int64_t row, float sink, float* to, const Partials& partials) const {
    float largest = sink;
    for (int64_t s = 0; s < segments; ++s) largest = std::max(largest, partials(s).largest[row]);
    float sum = std::exp(sink - largest);
    std::fill_n(to, channels_, 0.0f);
    for (int64_t s = 0; s < segments; ++s) {
      const Partial part = partials(s);
      const float factor = std::exp(part.largest[row] - largest);
      sum += part.sums[row] * factor;
      for (int64_t i = 0; i < channels_; ++i) to[i] += part.out[row * channels_ + i] * factor;
    }
    for (int64_t i = 0; i < channels_; ++i) to[i] /= sum;
  }

  SparseKvStore& store_;
  const KvStep& step_;
  int64_t batch_, heads_, channels_, rows_;
  KernelOf<ops::matmul_f32_f32_sparse> multiply_ = choose<ops::matmul_f32_f32_sparse>();
  KernelOf<ops::softmax_f32> softmax_ = choose<ops::softmax_f32>();
  KernelOf<ops::max_f32> max_ = choose<ops::max_f32>();
  KernelOf<ops::softcap_f32> cap_ = choose<ops::softcap_f32>();
};

void SparseKvStore::run(const KvStep& step, int threads) {
  SparseAttention attention(*this, step);
  step.count == 1 ? attention.decode(threads) : attention.prefill(threads);
  release_unseen();
}

}  // namespace tilepress
