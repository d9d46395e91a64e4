// Attention over a cache, a wave of tokens at a time. Keys and values change while tokens come: those of the last
// tokens are cut, and the last group of values is rounded anew. But blocks that were full and cut before a wave are the
// same for all of its tokens, and nearly all of a long context. So each head's keys are added first, one after the
// other, and each token's query multiplied with the blocks that change; then all queries with all other keys, and all
// weights with all other values, in any order; at last values are added, and weighted where they change. Kernels take
// four rows at a time: where fewer heads of queries share keys, tokens of a lot are multiplied together.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <stdexcept>

#include "dispatch/kv_cache.h"
#include "dispatch/kv_queries.h"
#include "dispatch/parallel.h"
#include "tilepress/convert.h"

namespace tilepress {
namespace {

constexpr int64_t kSegmentBlocks = kKvSegmentBlocks, kSegment = kKvSegment;  // SEGMENT of attention_reference.py

size_t size(int64_t count) { return static_cast<size_t>(count); }
int64_t segments_of(int64_t tokens) { return (tokens + kSegment - 1) / kSegment; }

// Floats are ordered as integers are once the bits of negative ones are turned over, and those compilers vectorise.
float largest_of(const float* values, int64_t count) {
  const auto turned = [](int32_t bits) { return bits ^ (bits >> 31 & 0x7fffffff); };
  int32_t largest = turned(std::bit_cast<int32_t>(-std::numeric_limits<float>::infinity()));
  for (int64_t i = 0; i < count; ++i) largest = std::max(largest, turned(std::bit_cast<int32_t>(values[i])));
  return std::bit_cast<float>(turned(largest));
}

}  // namespace

class KvAttention {
 public:
  KvAttention(KvCache& cache, const KvStep& step, int threads)
      : cache_(cache),
        step_(step),
        threads_(threads),
        heads_(cache.sizes().heads),
        all_(cache.sizes().batch * heads_),
        channels_(cache.sizes().channels),
        rows_(step.queries ? step.query_heads / heads_ : 0),
        lengths_(cache.lengths_) {}

  void run() {
    for (int64_t first = 0; first < step_.count; first += tokens_) {
      begin_wave(first);
      const int64_t pieces = rows_ ? all_ * lots_ * segments_ : 0;
      parallel_for(all_, threads_, [this](int, int64_t at) { add_keys(at); });
      parallel_for(pieces, threads_, [this](int, int64_t piece) { score(piece); });
      parallel_for(pieces, threads_, [this](int, int64_t piece) { mix(piece); });
      parallel_for(all_, threads_, [this](int, int64_t at) { add_values(at); });
      end_wave();
    }
  }

 private:
  static constexpr int64_t kMostTokens = 32, kMostFloats = int64_t{2} << 20;  // of a wave, and of what it computes

  // A token of the wave as one head has it: its place in the step, and the tokens of its sequence up to it.
  struct Token {
    int64_t head, place, length;
    bool kept;
  };

  // As many tokens as there is room for, at least one.
  void begin_wave(int64_t first) {
    first_ = first;
    tokens_ = std::min(step_.count - first, kMostTokens);
    const auto [shortest, longest] = std::minmax_element(lengths_.begin(), lengths_.end());
    first_segment_ = cache_.first_seen(*shortest + 1) / kSegment;
    segments_ = segments_of(*longest + tokens_) - first_segment_;
    if (!rows_) return;
    const int64_t of_token = all_ * segments_ * rows_ * (kSegment + channels_ + 2);
    tokens_ = std::min(tokens_, std::max<int64_t>(kMostFloats / of_token, 1));
    lot_ = step_.kept ? 1 : std::min(std::max<int64_t>(kKvSet / rows_, 1), tokens_);
    lots_ = (tokens_ + lot_ - 1) / lot_;
    queries_.resize(size(all_ * tokens_));
    lot_queries_.resize(size(lot_ > 1 ? all_ * lots_ : 0));
    make_room(lots_ * lot_ * of_token);
  }

  void end_wave() {
    for (size_t i = 0; i < lengths_.size(); ++i) {
      lengths_[i] = token(static_cast<int64_t>(i) * heads_, tokens_ - 1).length;
    }
  }

  // The calling thread keeps it for its next call: new memory would cost more to touch than scores to compute.
  void make_room(int64_t floats) {
    static thread_local std::vector<float> memory;
    if (static_cast<int64_t>(memory.size()) < floats) memory.resize(size(floats));
    const int64_t rows = all_ * lots_ * lot_ * segments_ * rows_;
    scores_ = memory.data();
    parts_ = scores_ + rows * kSegment;
    largest_ = parts_ + rows * channels_;
    shares_ = largest_ + rows;
  }

  Token token(int64_t head, int64_t index) const {
    const int64_t sequence = head / heads_, place = first_ + index;
    if (!step_.kept) return {head, place, lengths_[size(sequence)] + index + 1, true};
    const uint8_t* kept = step_.kept + sequence * step_.count;
    return {head, place, lengths_[size(sequence)] + std::count_if(kept + first_, kept + place + 1, std::identity()),
            kept[place] != 0};
  }

  // A lot's tokens, none of which is padding where there are several, and a segment of what they see.
  struct Piece {
    Token first;
    int64_t lot, tokens, segment;
  };
  Piece piece_of(int64_t index) const {
    const int64_t lot = index / segments_, first = lot % lots_ * lot_;
    return {token(lot / lots_, first), lot, std::min(lot_, tokens_ - first), first_segment_ + index % segments_};
  }
  static Token later(const Token& token, int64_t by) {
    return {token.head, token.place + by, token.length + by, token.kept};
  }

  // Items of a lot and a segment are neighbours.
  int64_t item_of(const Token& token, int64_t segment) const {
    const int64_t index = token.place - first_, lot = token.head * lots_ + index / lot_;
    return (lot * segments_ + segment - first_segment_) * lot_ + index % lot_;
  }
  Queries& queries_of(const Token& token) { return queries_[size(token.head * tokens_ + token.place - first_)]; }
  QueryRows query_rows(const Token& first, int64_t tokens) const {
    return {step_.queries + output(first), rows_, step_.count * channels_, tokens, channels_};
  }
  int64_t input(const Token& token) const { return (token.head * step_.count + token.place) * channels_; }
  int64_t output(const Token& token) const { return (token.head * rows_ * step_.count + token.place) * channels_; }

  // Blocks that were full before the wave, and all of their tokens cut.
  int64_t stable_blocks(int64_t head) const {
    return std::max<int64_t>(lengths_[size(head / heads_)] - cache_.changing_tokens(), 0) / kKvTokens;
  }

  void add_keys(int64_t head) {
    for (int64_t i = 0; i < tokens_; ++i) {
      const Token mine = token(head, i);
      if (!mine.kept) continue;
      cache_.append_key(head / heads_, head % heads_, mine.length - 1, step_.keys + input(mine));
      if (!rows_) continue;
      queries_of(mine).set(query_rows(mine, 1), channels_);
      if (lot_ > 1 && i % lot_ == 0) {
        lot_queries_[size(head * lots_ + i / lot_)].set(query_rows(mine, std::min(lot_, tokens_ - i)), channels_);
      }
      for_changing(mine, [&](const Seen& part) { score_blocks(mine, part, queries_of(mine)); });
    }
  }

  void score(int64_t index) {
    const Piece piece = piece_of(index);
    if (!piece.first.kept) return;
    const Queries& queries = lot_ > 1 ? lot_queries_[size(piece.lot)] : queries_of(piece.first);
    score_blocks(piece.first, stable_part(piece), queries);
    for (int64_t i = 0; i < piece.tokens; ++i) {
      const Token mine = later(piece.first, i);
      const Seen part = seen(mine, piece.segment, 0, kAll);
      const int64_t item = item_of(mine, piece.segment);
      for (int64_t row = item * rows_; row < (item + 1) * rows_; ++row) {
        const float* scores = scores_ + row * kSegment + part.first - part.segment * kSegment;
        largest_[row] = largest_of(scores, part.last - part.first);
      }
    }
  }

  void mix(int64_t index) {
    static thread_local std::vector<float> together;
    const Piece piece = piece_of(index);
    if (!piece.first.kept) return;
    const int64_t item = item_of(piece.first, piece.segment), rows = piece.tokens * rows_;
    float* parts = parts_ + item * rows_ * channels_;
    std::fill_n(shares_ + item * rows_, rows, 0.0f);
    std::fill_n(parts, rows * channels_, 0.0f);
    if (piece.tokens == 1) return mix_blocks(piece.first, stable_part(piece), 1, parts);
    together.assign(size(rows * channels_), 0.0f);
    mix_blocks(piece.first, stable_part(piece), piece.tokens, together.data());
    // [channels / 16, tokens, rows, 16] to each token's [channels / 16, rows, 16].
    const int64_t of_token = rows_ * kKvLanes;
    for (int64_t i = 0; i < channels_ / kKvLanes * piece.tokens; ++i) {
      const int64_t lanes = i / piece.tokens, token = i % piece.tokens;
      std::copy_n(together.data() + i * of_token, of_token, parts + token * rows_ * channels_ + lanes * of_token);
    }
  }

  void add_values(int64_t head) {
    for (int64_t i = 0; i < tokens_; ++i) {
      const Token mine = token(head, i);
      if (mine.kept) cache_.append_value(head / heads_, head % heads_, mine.length - 1, step_.values + input(mine));
      if (!rows_) continue;
      if (mine.kept) {
        for_changing(mine, [&](const Seen& part) {
          mix_blocks(mine, part, 1, parts_ + item_of(mine, part.segment) * rows_ * channels_);
        });
      }
      join(mine);
    }
  }

  // Tokens of a segment that a query sees, and the blocks that they lie in.
  struct Seen {
    int64_t segment, first_block, last_block, first, last;
  };
  static constexpr int64_t kAll = tilepress::kMostTokens;  // blocks

  // Those from block `begin` to `end`.
  Seen seen(const Token& token, int64_t segment, int64_t begin, int64_t end) const {
    const int64_t from = std::max({cache_.first_seen(token.length), segment * kSegment, begin * kKvTokens});
    const int64_t to = std::min({token.length, (segment + 1) * kSegment, end * kKvTokens});
    if (from >= to) return {segment, 0, 0, from, from};
    return {segment, from / kKvTokens, (to + kKvTokens - 1) / kKvTokens, from, to};
  }

  // Of what the first of a lot sees, which is no less than the others do of it.
  Seen stable_part(const Piece& piece) const {
    return seen(piece.first, piece.segment, 0, stable_blocks(piece.first.head));
  }

  // Those of blocks that change.
  template <class Work>
  void for_changing(const Token& token, const Work& work) const {
    const int64_t stable = stable_blocks(token.head);
    const int64_t first = std::max(stable / kSegmentBlocks, first_segment_);
    for (int64_t segment = first; segment < segments_of(token.length); ++segment) {
      work(seen(token, segment, stable, kAll));
    }
  }

  static KvBlock block_of(const KvUnits& units) { return {units.codes, units.lows, units.exponents}; }

  void score_blocks(const Token& token, const Seen& part, const Queries& rows) {
    const KvQueries queries = rows.view();
    float* scores = scores_ + item_of(token, part.segment) * rows_ * kSegment - part.segment * kSegment;
    for (int64_t block = part.first_block; block < part.last_block; ++block) {
      const KvUnits keys = cache_.keys(token.head / heads_, token.head % heads_, block, token.length);
      score_kernel_(block_of(keys), channels_, queries, step_.scaling, scores + block * kKvTokens);
    }
  }

  // What `tokens` tokens get from blocks of the first one's, added to parts [channels / 16, tokens, rows, 16].
  void mix_blocks(const Token& first, const Seen& part, int64_t tokens, float* parts) {
    static thread_local Weights weights;
    const int64_t item = item_of(first, part.segment), count = part.last_block - part.first_block;
    const int64_t rows = tokens * rows_;
    if (!count) return;
    float* shares = shares_ + item * rows_;
    weights.make_room(rows);
    for (int64_t row = 0; row < rows; ++row) {
      const Token token = later(first, row / rows_);
      float* scores =
          scores_ + (item * rows_ + row) * kSegment - part.segment * kSegment + part.first_block * kKvTokens;
      hide_unseen(scores, part, std::clamp(cache_.first_seen(token.length), part.first, part.last));
      weigh_kernel_(scores, count * kKvTokens, largest_of_all(token, row % rows_),
                    weights.values.data() + row * kSegment, weights.sums.data() + row * kSegmentBlocks,
                    weights.units.data() + row * kSegmentBlocks);
    }
    for (int64_t i = 0; i < count; ++i) {
      const KvUnits values =
          cache_.values(first.head / heads_, first.head % heads_, part.first_block + i, first.length);
      mix_kernel_(block_of(values), channels_,
                  {weights.values.data() + i * kKvTokens, weights.sums.data() + i, weights.units.data() + i, rows},
                  parts);
      for (int64_t row = 0; row < rows; ++row) {
        const size_t group = size(row * kSegmentBlocks + i);
        shares[row] += static_cast<float>(weights.sums[group]) * weights.units[group];
      }
    }
  }

  // Tokens of blocks that are not seen, those before `first` among them, get scores whose weights are 0.
  static void hide_unseen(float* scores, const Seen& part, int64_t first) {
    constexpr float kHidden = -1e30f;
    const int64_t begin = part.first_block * kKvTokens, end = part.last_block * kKvTokens;
    std::fill(scores, scores + first - begin, kHidden);
    std::fill(scores + part.last - begin, scores + end - begin, kHidden);
  }

  float largest_of_all(const Token& token, int64_t row) const {
    float largest = -std::numeric_limits<float>::infinity();
    for (int64_t s = first_segment_; s < segments_of(token.length); ++s) {
      largest = std::max(largest, largest_[item_of(token, s) * rows_ + row]);
    }
    return largest;
  }

  // Parts are [channels / 16, rows, 16]; outputs of each row [channels].
  void join(const Token& token) const {
    float* to = step_.out + output(token);
    for (int64_t row = 0; row < rows_; ++row, to += step_.count * channels_) {
      std::fill(to, to + channels_, 0.0f);
      if (!token.kept) continue;
      float share = 0;
      for (int64_t s = first_segment_; s < segments_of(token.length); ++s) {
        const float* part = parts_ + item_of(token, s) * rows_ * channels_ + row * kKvLanes;
        for (int64_t i = 0; i < channels_; i += kKvLanes, part += rows_ * kKvLanes) {
          for (int lane = 0; lane < kKvLanes; ++lane) to[i + lane] += part[lane];
        }
        share += shares_[item_of(token, s) * rows_ + row];
      }
      for (int64_t i = 0; i < channels_; ++i) to[i] /= share;
    }
  }

  KvScores* const score_kernel_ = choose(kKvScores);
  KvMix* const mix_kernel_ = choose(kKvMix);
  KvWeigh* const weigh_kernel_ = choose(kKvWeigh);
  KvCache& cache_;
  const KvStep& step_;
  const int threads_;
  const int64_t heads_, all_, channels_, rows_;
  std::vector<int64_t> lengths_;  // before the wave
  int64_t first_ = 0, tokens_ = 1;
  int64_t first_segment_ = 0, segments_ = 0;    // those that some token of the wave sees
  int64_t lot_ = 1, lots_ = 1;                  // tokens that are multiplied together, and how many lots there are
  std::vector<Queries> queries_, lot_queries_;  // [heads, tokens], [heads, lots]
  // Of each item, which is a segment of what a token of the wave sees as a head has it: scores, the largest of them,
  // and the outputs' parts.
  float *scores_ = nullptr, *largest_ = nullptr, *parts_ = nullptr, *shares_ = nullptr;
};

namespace {

// Keys (part 0) or values of a step's tokens as halves of which the smallest of each token are zero.
std::vector<float> without_smallest(const KvSizes& sizes, const KvStep& step, int part, int threads) {
  const int64_t channels = sizes.channels, count = sizes.token_values(), drop = sizes.token_drop(part);
  const float* given = part ? step.values : step.keys;
  std::vector<float> kept(size(sizes.batch * step.count * count));
  parallel_for(sizes.batch * step.count, threads, [&](int, int64_t item) {
    static thread_local std::vector<uint16_t> halves;
    halves.resize(size(count));
    const int64_t first = item / step.count * sizes.heads * step.count + item % step.count;
    const auto place = [&](int64_t i) { return (first + i / channels * step.count) * channels + i % channels; };
    for (int64_t i = 0; i < count; ++i) halves[size(i)] = float_to_fp16(given[place(i)]);
    drop_smallest(halves.data(), count, drop);
    for (int64_t i = 0; i < count; ++i) kept[size(place(i))] = fp16_to_float(halves[size(i)]);
  });
  return kept;
}

}  // namespace

void KvCache::run(const KvStep& step, int threads) {
  KvStep thinned = step;
  std::vector<float> keys, values;
  if (sizes_.key_drop) thinned.keys = (keys = without_smallest(sizes_, step, 0, threads)).data();
  if (sizes_.value_drop) thinned.values = (values = without_smallest(sizes_, step, 1, threads)).data();
  KvAttention(*this, thinned, threads).run();
  settle(step);
}

}  // namespace tilepress
