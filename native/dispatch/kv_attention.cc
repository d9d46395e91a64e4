// Attention over a cache: a token of all heads at once, cut in segments of its context for as many threads as there
// are, or the tokens of a prompt one after the other, each head by itself.
#include <cmath>
#include <limits>
#include <stdexcept>

#include "dispatch/kv_cache.h"
#include "dispatch/parallel.h"
#include "dispatch/registry.h"

namespace tilepress {
namespace {

constexpr int64_t kSegmentBlocks = kKvSegmentBlocks, kSegment = kKvSegment;  // SEGMENT of attention_reference.py

size_t size(int64_t count) { return static_cast<size_t>(count); }
int64_t segments_of(int64_t tokens) { return (tokens + kSegment - 1) / kSegment; }

// Exponents of all ones are infinities and NaN; by integers, which compilers vectorise.
bool all_finite(const float* values, int64_t count) {
  uint32_t bad = 0;
  for (int64_t i = 0; i < count; ++i) bad |= (std::bit_cast<uint32_t>(values[i]) & 0x7f800000) == 0x7f800000;
  return !bad;
}

float largest_of(const float* values, int64_t count) {
  constexpr int kLanes = 16;
  float lanes[kLanes], largest = -std::numeric_limits<float>::infinity();
  std::fill(lanes, lanes + kLanes, largest);
  int64_t at = 0;
  for (; at + kLanes <= count; at += kLanes) {
    for (int i = 0; i < kLanes; ++i) lanes[i] = values[at + i] > lanes[i] ? values[at + i] : lanes[i];
  }
  for (; at < count; ++at) largest = std::max(largest, values[at]);
  for (float lane : lanes) largest = std::max(largest, lane);
  return largest;
}

// Queries of the heads that share keys and values, as integers.
struct Queries {
  std::vector<int8_t> digits;
  std::vector<int32_t> sums;
  std::vector<float> units;

  // Row r begins at queries + r * stride.
  void set(const float* queries, int64_t rows, int64_t stride, int64_t channels) {
    const int64_t groups = channels / kKvGroup;
    digits.resize(size(2 * rows * channels));
    sums.resize(size(rows * groups));
    units.resize(sums.size());
    QuantizeBfp* quantize = choose(kQuantizeBfp);
    for (int64_t group = 0; group < groups; ++group) {
      for (int64_t row = 0; row < rows; ++row) {
        const int64_t at = group * rows + row;
        int8_t* high = digits.data() + at * 2 * kKvGroup;
        quantize({queries + row * stride + group * kKvGroup, kKvGroup, kKvGroup, 8, kKvGroup},
                 {{high, high + kKvGroup}, sums.data() + at, units.data() + at});
      }
    }
  }
  KvQueries view(int64_t rows) const { return {digits.data(), sums.data(), units.data(), rows}; }
};

// A segment's weights as integers.
struct Weights {
  std::vector<uint8_t> values;  // [rows, kSegment]
  std::vector<int32_t> sums;    // [rows, kSegmentBlocks]
  std::vector<float> units;

  void make_room(int64_t rows) {
    values.resize(size(rows * kSegment));
    sums.resize(size(rows * kSegmentBlocks));
    units.resize(sums.size());
  }
};

}  // namespace

class KvAttention {
 public:
  KvAttention(KvCache& cache, const KvStep& step)
      : cache_(cache),
        step_(step),
        heads_(cache.shape().heads),
        channels_(cache.shape().channels),
        rows_(step.queries ? step.query_heads / heads_ : 0) {}

  // One token of every sequence.
  void decode(int threads) {
    const int64_t all = cache_.shape().batch * heads_;
    int64_t longest = 0;
    for (int64_t i = 0; i < cache_.shape().batch; ++i) longest = std::max(longest, cache_.length(i) + 1);
    const int64_t segments = segments_of(longest), items = all * segments;
    queries_.resize(size(all));
    parallel_for(all, threads, [&](int, int64_t at) {
      append(at, 0, cache_.length(at / heads_));
      if (rows_) queries_[size(at)].set(query(at, 0), rows_, channels_, channels_);
    });
    if (!rows_) return;
    make_room(items);
    parallel_for(items, threads, [&](int, int64_t item) { score(item, segments); });
    parallel_for(items, threads, [&](int, int64_t item) { mix(item, segments); });
    for (int64_t at = 0; at < all; ++at) {
      join(at * segments, segments_of(cache_.length(at / heads_) + 1), out(at, 0), is_kept(at, 0));
    }
  }

  // Tokens of every sequence one after the other, as if each were decoded.
  void prefill(int threads) {
    parallel_for(cache_.shape().batch * heads_, threads, [&](int, int64_t at) {
      KvAttention mine(cache_, step_);
      mine.walk(at);
    });
  }

 private:
  void walk(int64_t at) {
    int64_t length = cache_.length(at / heads_);
    queries_.resize(1);
    for (int64_t i = 0; i < step_.count; ++i) {
      const bool kept = is_kept(at, i);
      if (kept) append(at, i, length++);
      if (!rows_) continue;
      const int64_t segments = segments_of(length);
      make_room(segments);
      if (kept) {
        queries_[0].set(query(at, i), rows_, step_.count * channels_, channels_);
        for (int64_t s = 0; s < segments; ++s) score_segment(at, s, length, queries_[0], s);
        for (int64_t s = 0; s < segments; ++s) mix_segment(at, s, length, 0, segments, s);
      }
      join(0, segments, out(at, i), kept);
    }
  }

  // The calling thread keeps it for its next call: new memory would cost more to touch than scores to compute.
  void make_room(int64_t items) {
    static thread_local std::vector<float> memory;
    const int64_t of_item = rows_ * (kSegment + channels_ + 2);
    if (static_cast<int64_t>(memory.size()) < items * of_item) memory.resize(size(items * of_item));
    scores_ = memory.data();
    parts_ = scores_ + items * rows_ * kSegment;
    largest_ = parts_ + items * rows_ * channels_;
    shares_ = largest_ + items * rows_;
  }

  bool is_kept(int64_t at, int64_t token) const { return !step_.kept || step_.kept[at / heads_ * step_.count + token]; }
  int64_t offset(int64_t at, int64_t token) const { return (at * step_.count + token) * channels_; }
  const float* query(int64_t at, int64_t token) const {
    return step_.queries + (at * rows_ * step_.count + token) * channels_;
  }
  float* out(int64_t at, int64_t token) const { return step_.out + (at * rows_ * step_.count + token) * channels_; }

  void append(int64_t at, int64_t token, int64_t length) {
    if (!is_kept(at, token)) return;
    cache_.append(at / heads_, at % heads_, length, step_.keys + offset(at, token), step_.values + offset(at, token));
  }

  void score(int64_t item, int64_t segments) {
    const int64_t at = item / segments, length = cache_.length(at / heads_) + 1;
    if (is_kept(at, 0)) score_segment(at, item % segments, length, queries_[size(at)], item);
  }

  void mix(int64_t item, int64_t segments) {
    const int64_t at = item / segments, length = cache_.length(at / heads_) + 1;
    if (is_kept(at, 0)) mix_segment(at, item % segments, length, at * segments, segments_of(length), item);
  }

  // Blocks and tokens of a segment that the query after `length` tokens sees.
  struct Seen {
    int64_t first_block, last_block, first, last;
  };
  Seen seen(int64_t segment, int64_t length) const {
    const int64_t first = std::max(cache_.first_seen(length), segment * kSegment);
    const int64_t last = std::max(first, std::min(length, (segment + 1) * kSegment));
    return {first / kKvTokens, (last + kKvTokens - 1) / kKvTokens, first, last};
  }

  static KvBlock block_of(const KvUnits& units) { return {units.codes, units.lows, units.exponents}; }

  // Scores of a segment to place `item` of the scores, and the largest of each row.
  void score_segment(int64_t at, int64_t segment, int64_t length, const Queries& queries, int64_t item) {
    const Seen part = seen(segment, length);
    KvScores* kernel = choose(kKvScores);
    float* scores = scores_ + item * rows_ * kSegment;
    for (int64_t block = part.first_block; part.first < part.last && block < part.last_block; ++block) {
      const KvUnits keys = cache_.keys(at / heads_, at % heads_, block, length);
      kernel(block_of(keys), channels_, queries.view(rows_), step_.scaling,
             scores + (block - segment * kSegmentBlocks) * kKvTokens);
    }
    for (int64_t row = 0; row < rows_; ++row) {
      const float* of_row = scores + row * kSegment + part.first - segment * kSegment;
      largest_[item * rows_ + row] = largest_of(of_row, part.last - part.first);
    }
  }

  // Weighted values of a segment to place `item` of the parts; the sequence's segments are those from `base` on.
  void mix_segment(int64_t at, int64_t segment, int64_t length, int64_t base, int64_t segments, int64_t item) {
    static thread_local Weights weights;
    const Seen part = seen(segment, length);
    float* parts = parts_ + item * rows_ * channels_;
    float* shares = shares_ + item * rows_;
    std::fill(parts, parts + rows_ * channels_, 0.0f);
    std::fill(shares, shares + rows_, 0.0f);
    if (part.first >= part.last) return;
    const int64_t first = part.first_block - segment * kSegmentBlocks, count = part.last_block - part.first_block;
    float* scores = scores_ + item * rows_ * kSegment + first * kKvTokens;
    weights.make_room(rows_);
    KvWeigh* weigh = choose(kKvWeigh);
    for (int64_t row = 0; row < rows_; ++row) {
      hide_unseen(scores + row * kSegment, part);
      weigh(scores + row * kSegment, count * kKvTokens, largest_of_all(row, base, segments),
            weights.values.data() + row * kSegment, weights.sums.data() + row * kSegmentBlocks,
            weights.units.data() + row * kSegmentBlocks);
    }
    KvMix* kernel = choose(kKvMix);
    for (int64_t i = 0; i < count; ++i) {
      const KvUnits values = cache_.values(at / heads_, at % heads_, part.first_block + i, length);
      kernel(block_of(values), channels_,
             {weights.values.data() + i * kKvTokens, weights.sums.data() + i, weights.units.data() + i, rows_}, parts);
      for (int64_t row = 0; row < rows_; ++row) {
        const size_t group = size(row * kSegmentBlocks + i);
        shares[row] += static_cast<float>(weights.sums[group]) * weights.units[group];
      }
    }
  }

  // Tokens of a block that are not seen get scores whose weights are 0.
  static void hide_unseen(float* scores, const Seen& part) {
    constexpr float kHidden = -1e30f;
    const int64_t begin = part.first_block * kKvTokens, end = part.last_block * kKvTokens;
    std::fill(scores, scores + part.first - begin, kHidden);
    std::fill(scores + part.last - begin, scores + end - begin, kHidden);
  }

  float largest_of_all(int64_t row, int64_t base, int64_t segments) const {
    float largest = -std::numeric_limits<float>::infinity();
    for (int64_t s = 0; s < segments; ++s) largest = std::max(largest, largest_[(base + s) * rows_ + row]);
    return largest;
  }

  // Parts are [channels / 16, rows, 16]; `to` of each row [channels].
  void join(int64_t base, int64_t segments, float* to, bool kept) const {
    for (int64_t row = 0; row < rows_; ++row, to += step_.count * channels_) {
      std::fill(to, to + channels_, 0.0f);
      if (!kept) continue;
      float share = 0;
      for (int64_t s = 0; s < segments; ++s) {
        const float* part = parts_ + (base + s) * rows_ * channels_;
        for (int64_t i = 0; i < channels_; ++i) {
          to[i] += part[(i / kKvLanes * rows_ + row) * kKvLanes + i % kKvLanes];
        }
        share += shares_[(base + s) * rows_ + row];
      }
      for (int64_t i = 0; i < channels_; ++i) to[i] /= share;
    }
  }

  KvCache& cache_;
  const KvStep& step_;
  int64_t heads_, channels_, rows_;
  std::vector<Queries> queries_;
  // Of each item, a segment of a head: scores, which become weights, the largest of them, and the outputs' parts.
  float *scores_ = nullptr, *largest_ = nullptr, *parts_ = nullptr, *shares_ = nullptr;
};

void KvCache::attend(const KvStep& step, int threads) {
  const int64_t per_head = shape_.batch * step.count * shape_.channels;
  const bool finite = all_finite(step.keys, per_head * shape_.heads) &&
                      all_finite(step.values, per_head * shape_.heads) &&
                      (!step.queries || all_finite(step.queries, per_head * step.query_heads));
  if (!finite) throw std::invalid_argument("queries, keys and values must be finite");
  reserve(step);
  KvAttention attention(*this, step);
  step.count == 1 ? attention.decode(threads) : attention.prefill(threads);
  settle(step);
}

}  // namespace tilepress
