// Attention over a sparse cache: a token of all heads at once, cut in segments of its context for as many threads as
// there are, or the tokens of a prompt, block after block. Every query goes through the same segments either way, and
// what each gives is joined in their order, so that neither threads nor calls change a bit.
#include <cmath>
#include <limits>
#include <numeric>
#include <stdexcept>

#include "dispatch/kv_sparse.h"
#include "dispatch/parallel.h"
#include "dispatch/registry.h"
#include "tilepress/elementwise.h"

namespace tilepress {
namespace {

constexpr int64_t kSegment = 512;       // tokens: so many that joining is little, so few that threads end together
constexpr int64_t kTokensTogether = 4;  // of a prompt, whose queries read keys and values once
constexpr float kLeast = -std::numeric_limits<float>::infinity();

size_t size(int64_t count) { return static_cast<size_t>(count); }

// Waking threads takes longer than so many values.
int threads_for(int64_t values, int threads) { return values < 1 << 14 ? 1 : threads; }
int64_t segments_of(int64_t tokens) { return (tokens + kSegment - 1) / kSegment; }

// Queries that read a head's keys and values together.
struct Rows {
  std::vector<float> queries;    // [rows, channels], scaled
  std::vector<int64_t> lengths;  // tokens up to each one's own
};

// What a segment gives to each row: values weighted by e^(score - largest), the sum of weights, and the largest score.
struct Partial {
  float *out, *sums, *largest;  // [rows, channels], [rows], [rows]
};

}  // namespace

class SparseAttention {
 public:
  SparseAttention(SparseKvCache& cache, const KvStep& step)
      : cache_(cache),
        step_(step),
        batch_(cache.sizes().batch),
        heads_(cache.sizes().heads),
        channels_(cache.sizes().channels),
        rows_(step.queries ? step.query_heads / heads_ : 0) {}

  // One token of every sequence.
  void decode(int threads) {
    const int64_t all = batch_ * heads_;
    const auto [shortest, longest] = std::minmax_element(cache_.lengths_.begin(), cache_.lengths_.end());
    const int64_t unseen = unseen_segments(*shortest + 1), segments = segments_of(*longest + 1) - unseen;
    std::vector<Rows> rows(size(all));
    parallel_for(all, threads_for(all * channels_ * (2 + rows_), threads), [&](int, int64_t at) {
      if (!step_.keeps(at / heads_, 0)) return;
      append(at / heads_, at % heads_, 0, cache_.length(at / heads_));
      if (rows_) rows[size(at)] = rows_of(at, {0}, cache_.length(at / heads_));
    });
    if (rows_) {
      float* memory = room_for(all * segments, rows_);
      parallel_for(all * segments, threads, [&](int, int64_t item) {
        const int64_t at = item / segments;
        if (step_.keeps(at / heads_, 0))
          attend_segment(at, unseen + item % segments, rows[size(at)], partial(memory, item, rows_));
      });
      parallel_for(all, threads_for(all * segments * rows_ * channels_, threads), [&](int, int64_t at) {
        if (!step_.keeps(at / heads_, 0)) return clear(at, 0);
        const int64_t mine = segments_of(cache_.length(at / heads_) + 1) - unseen;
        for (int64_t row = 0; row < rows_; ++row) {
          join(mine, row, out(at, row, 0), [&](int64_t s) { return partial(memory, at * segments + s, rows_); });
        }
      });
    }
    std::vector<int64_t> full;
    for (int64_t i = 0; i < batch_; ++i) {
      if (step_.keeps(i, 0) && (cache_.length(i) + 1) % kSparseTokens == 0) full.push_back(i);
    }
    close(full, threads);
    for (int64_t i = 0; i < batch_; ++i) cache_.lengths_[size(i)] += step_.keeps(i, 0);
  }

  // Tokens of every sequence, block after block: all of a block see it open.
  void prefill(int threads) {
    for (int64_t sequence = 0; sequence < batch_; ++sequence) {
      std::vector<int64_t> tokens;
      for (int64_t i = 0; i < step_.count; ++i) {
        step_.keeps(sequence, i) ? tokens.push_back(i) : clear_all(sequence, i);
        const int64_t length = cache_.length(sequence) + static_cast<int64_t>(tokens.size());
        if (tokens.empty() || (length % kSparseTokens && i + 1 < step_.count)) continue;
        add(sequence, tokens, threads);
        tokens.clear();
      }
    }
  }

 private:
  // Those that no query of `length` tokens or more sees anything of.
  int64_t unseen_segments(int64_t length) const { return cache_.first_seen(length) / kSegment; }

  float* out(int64_t at, int64_t row, int64_t token) const {
    return step_.out + ((at * rows_ + row) * step_.count + token) * channels_;
  }
  void clear(int64_t at, int64_t token) const {
    for (int64_t row = 0; row < rows_; ++row) std::fill_n(out(at, row, token), channels_, 0.0f);
  }

  void clear_all(int64_t sequence, int64_t token) const {
    for (int64_t head = 0; head < heads_; ++head) clear(sequence * heads_ + head, token);
  }

  // Tokens of the step that lie in one block of a sequence.
  void add(int64_t sequence, const std::vector<int64_t>& tokens, int threads) {
    const int64_t before = cache_.length(sequence), count = static_cast<int64_t>(tokens.size()), after = before + count;
    parallel_for(heads_, threads, [&](int, int64_t head) {
      for (int64_t i = 0; i < count; ++i) append(sequence, head, tokens[size(i)], before + i);
    });
    const int64_t row_panels = rows_ ? (count + kTokensTogether - 1) / kTokensTogether : 0;
    parallel_for(heads_ * row_panels, threads, [&](int, int64_t item) {
      const int64_t first = item % row_panels * kTokensTogether, last = std::min(first + kTokensTogether, count);
      const auto begin = tokens.begin();
      attend_together(sequence * heads_ + item / row_panels, {begin + first, begin + last}, before + first);
    });
    if (after % kSparseTokens == 0) close({sequence}, threads);
    cache_.lengths_[size(sequence)] = after;
  }

  // The last blocks of some sequences, whose lengths before it was full are what the cache says.
  void close(const std::vector<int64_t>& sequences, int threads) {
    const int64_t parts = 2 * static_cast<int64_t>(sequences.size());
    parallel_for(parts * kSparseTokens, threads, [&](int, int64_t item) {
      const int64_t part = item / kSparseTokens;
      cache_.thin_out(sequences[size(part / 2)], static_cast<int>(part % 2), item % kSparseTokens);
    });
    parallel_for(parts, threads, [&](int, int64_t part) {
      const int64_t sequence = sequences[size(part / 2)];
      cache_.close(sequence, cache_.length(sequence) / kSparseTokens, static_cast<int>(part % 2));
    });
  }

  void append(int64_t sequence, int64_t head, int64_t token, int64_t length) {
    const int64_t at = ((sequence * heads_ + head) * step_.count + token) * channels_;
    cache_.append(sequence, head, length, step_.keys + at, step_.values + at);
  }

  // Queries of the heads that share head `at`, of tokens the first of which comes after `length` others.
  Rows rows_of(int64_t at, const std::vector<int64_t>& tokens, int64_t length) const {
    Rows rows;
    for (int64_t token : tokens) {
      ++length;
      for (int64_t row = 0; row < rows_; ++row) {
        const float* from = step_.queries + ((at * rows_ + row) * step_.count + token) * channels_;
        for (int64_t i = 0; i < channels_; ++i) rows.queries.push_back(from[i] * step_.scaling);
        rows.lengths.push_back(length);
      }
    }
    return rows;
  }

  void attend_together(int64_t at, const std::vector<int64_t>& tokens, int64_t length) {
    const Rows rows = rows_of(at, tokens, length);
    const int64_t count = static_cast<int64_t>(rows.lengths.size()), unseen = unseen_segments(rows.lengths.front());
    const int64_t segments = segments_of(rows.lengths.back()) - unseen;
    float* memory = room_for(segments, count);
    for (int64_t s = 0; s < segments; ++s) attend_segment(at, unseen + s, rows, partial(memory, s, count));
    for (int64_t row = 0; row < count; ++row) {
      join(segments_of(rows.lengths[size(row)]) - unseen, row, out(at, row % rows_, tokens[size(row / rows_)]),
           [&](int64_t s) { return partial(memory, s, count); });
    }
  }

  int64_t partial_size(int64_t rows) const { return rows * (channels_ + 2); }
  // The calling thread keeps it for its next call: new memory would cost more to touch than scores to compute.
  float* room_for(int64_t partials, int64_t rows) const {
    static thread_local std::vector<float> memory;
    memory.resize(std::max(memory.size(), size(partials * partial_size(rows))));
    return memory.data();
  }
  Partial partial(float* memory, int64_t index, int64_t rows) const {
    float *at = memory + index * partial_size(rows), *sums = at + rows * channels_;
    return {at, sums, sums + rows};
  }

  void attend_segment(int64_t at, int64_t segment, const Rows& rows, const Partial& to) {
    static thread_local std::vector<float> scores;
    const int64_t count = static_cast<int64_t>(rows.lengths.size()), begin = segment * kSegment;
    const int64_t first = std::max(begin, cache_.first_seen(rows.lengths.front())) / kSparseTokens;
    const int64_t longest = rows.lengths.back(), end = std::min(longest, begin + kSegment);
    const int64_t last = (end + kSparseTokens - 1) / kSparseTokens, opened = (longest - 1) / kSparseTokens;
    const auto units = [&](int64_t block, int part) {
      return cache_.units(at / heads_, at % heads_, block, part, block == opened);
    };
    scores.assign(size(count * kSegment), 0.0f);
    std::fill_n(to.out, partial_size(count), 0.0f);
    for (int64_t block = first; block < last; ++block) {
      multiply_(units(block, 0), {rows.queries.data(), count, channels_}, scores.data() + block * kSparseTokens - begin,
                kSegment);
    }
    for (int64_t row = 0; row < count; ++row)
      weigh(scores.data() + row * kSegment, begin, rows.lengths[size(row)], row, to);
    for (int64_t block = first; block < last; ++block) {
      multiply_(units(block, 1), {scores.data() + block * kSparseTokens - begin, count, kSegment}, to.out, channels_);
    }
  }

  // Scores of a segment, which begins at token `begin`, to weights: 0 for tokens that a query after `length` does not
  // see.
  void weigh(float* scores, int64_t begin, int64_t length, int64_t row, const Partial& to) const {
    const int64_t first = std::clamp<int64_t>(cache_.first_seen(length) - begin, 0, kSegment);
    const int64_t last = std::clamp<int64_t>(length - begin, first, kSegment);
    std::fill(scores, scores + first, 0.0f);
    std::fill(scores + last, scores + kSegment, 0.0f);
    to.largest[row] = largest_of_(scores + first, last - first);
    to.sums[row] = weights_(scores + first, last - first, to.largest[row]);
  }

  template <class Partials>
  void join(int64_t segments, int64_t row, float* to, const Partials& partials) const {
    float largest = kLeast, sum = 0;
    for (int64_t s = 0; s < segments; ++s) largest = std::max(largest, partials(s).largest[row]);
    std::fill_n(to, channels_, 0.0f);
    for (int64_t s = 0; s < segments; ++s) {
      const Partial part = partials(s);
      const float share = std::exp(part.largest[row] - largest);
      sum += part.sums[row] * share;
      for (int64_t i = 0; i < channels_; ++i) to[i] += part.out[row * channels_ + i] * share;
    }
    for (int64_t i = 0; i < channels_; ++i) to[i] /= sum;
  }

  SparseKvCache& cache_;
  const KvStep& step_;
  int64_t batch_, heads_, channels_, rows_;
  KernelOf<ops::matmul_f32_f32_sparse> multiply_ = choose<ops::matmul_f32_f32_sparse>();
  KernelOf<ops::softmax_f32> weights_ = choose<ops::softmax_f32>();
  KernelOf<ops::max_f32> largest_of_ = choose<ops::max_f32>();
};

void SparseKvCache::run(const KvStep& step, int threads) {
  SparseAttention attention(*this, step);
  step.count == 1 ? attention.decode(threads) : attention.prefill(threads);
  release_unseen();
}

}  // namespace tilepress
