// Attention over a cache, a wave of tokens at a time. Keys and values change while tokens come: those of the last
// tokens are cut, and the last group of values is rounded anew. But blocks that were full and cut before a wave are the
// same for all of its tokens, and nearly all of a long context. So each head's keys are added one after the other, and
// each token's query multiplied with the blocks that change, while all queries are multiplied with all other keys, in
// any order; then all weights with all other values; at last values are added, and weighted where they change. Kernels
// take four rows at a time, those of matrix units 32: where fewer heads of queries share keys, tokens of a row panel
// are multiplied together.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <stdexcept>

#include "dispatch/kv_cache.h"
#include "dispatch/kv_queries.h"
#include "dispatch/parallel.h"
#include "tilepress/convert.h"
#include "tilepress/elementwise.h"

namespace tilepress {
namespace {

constexpr int64_t kSegmentBlocks = kKvSegmentBlocks, kSegment = kKvSegment;  // SEGMENT of attention_reference.py

size_t size(int64_t count) { return static_cast<size_t>(count); }
int64_t segments_of(int64_t tokens) { return (tokens + kSegment - 1) / kSegment; }

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
        parts_of_head_(std::clamp<int64_t>(threads / all_, 1, kv_units(channels_))),
        lengths_(cache.lengths_) {}

  void run() {
    for (int64_t first = 0; first < step_.count; first += tokens_) {
      begin_wave(first);
      const int64_t pieces = rows_ ? all_ * row_panels_ * segments_ : 0, jobs = all_ + pieces;
      parallel_for(tokens_ > 1 ? pieces / segments_ : 0, threads_,
                   [this](int, int64_t row_panel) { prepare(row_panel); });
      // Heads, which take longest, evenly among pieces: threads begin with neighbours.
      const auto heads_before = [&](int64_t job) { return (job * all_ + jobs - 1) / jobs; };
      parallel_for(jobs, threads_, [&](int, int64_t job) {
        const int64_t before = heads_before(job);
        heads_before(job + 1) > before ? add_keys(before) : score(job - before);
      });
      parallel_for(pieces, threads_, [this](int, int64_t piece) { mix(piece); });
      parallel_for(all_ * parts_of_head_, threads_, [this](int, int64_t part) { add_values(part); });
      end_wave();
    }
  }

 private:
  // Of a wave; and what it computes has room for so many floats, in all and for each thread.
  static constexpr int64_t kMostTokens = 32, kFewFloats = 1 << 21, kMostFloats = 1 << 23, kFloatsOfThread = 1 << 19;
  // Rows that matrix units are not worth while for, and that they take together.
  static constexpr int64_t kFewRows = 8, kTogether = 32;

  // A token of the wave as one head has it: its place in the step, and the tokens of its sequence up to it.
  struct Token {
    int64_t head, place, length;
    bool kept;
  };

  // Whether the kernel of tiles is for a higher instruction set than the other, or for the same.
  static bool prefers_tiles() { return find<ops::score_f32_bf16_bfp>()->isa >= find<ops::score_f32_bfp_bfp>()->isa; }

  // As many tokens as there is room for, at least one.
  void begin_wave(int64_t first) {
    first_ = first;
    tokens_ = std::min(step_.count - first, kMostTokens);
    const auto [shortest, longest] = std::minmax_element(lengths_.begin(), lengths_.end());
    first_segment_ = cache_.first_seen(*shortest + 1) / kSegment;
    segments_ = segments_of(*longest + tokens_) - first_segment_;
    if (!rows_) return;
    const int64_t of_token = all_ * segments_ * rows_;
    const int64_t room = std::clamp(kFloatsOfThread * threads_, kFewFloats, kMostFloats);
    tokens_ = std::min(tokens_, std::max<int64_t>(room / (of_token * (kSegment + channels_)), 1));
    tiles_ = prefers_tiles() && (step_.kept ? 1 : tokens_) * rows_ > kFewRows;
    const int64_t together = (tiles_ ? kTogether : kKvSet) / rows_;
    row_panel_ = step_.kept ? 1 : std::min(std::max<int64_t>(together, 1), tokens_);
    row_panels_ = (tokens_ + row_panel_ - 1) / row_panel_;
    queries_.resize(size(tokens_ > 1 ? all_ * tokens_ : 0));
    row_panel_queries_.resize(size(row_panel_ > 1 && !tiles_ ? all_ * row_panels_ : 0));
    row_panel_tiles_.resize(size(tiles_ ? all_ * row_panels_ : 0));
    make_room(row_panels_ * row_panel_ * of_token);
  }

  void end_wave() {
    for (size_t i = 0; i < lengths_.size(); ++i) {
      lengths_[i] = token(static_cast<int64_t>(i) * heads_, tokens_ - 1).length;
    }
  }

  // The calling thread keeps it for its next call: new memory would cost more to touch than scores to compute.
  void make_room(int64_t rows) {
    static thread_local KvMemory memory;
    const int64_t floats = kSegment + channels_ + 3, groups = 2 * kSegmentBlocks;
    const int64_t bytes = rows * ((floats + groups) * int64_t{sizeof(float)} + kSegment);
    if (memory.size() < bytes) memory = KvMemory(bytes);
    scores_ = memory.as<float>();
    parts_ = scores_ + rows * kSegment;
    largest_ = parts_ + rows * channels_;
    recent_ = largest_ + rows;
    shares_ = recent_ + rows;
    weights_.units = shares_ + rows;
    weights_.sums = reinterpret_cast<int32_t*>(weights_.units + rows * kSegmentBlocks);
    weights_.values = reinterpret_cast<uint8_t*>(weights_.sums + rows * kSegmentBlocks);
    std::fill_n(recent_, rows, -std::numeric_limits<float>::infinity());
  }

  Token token(int64_t head, int64_t index) const {
    const int64_t sequence = head / heads_, place = first_ + index;
    if (!step_.kept) return {head, place, lengths_[size(sequence)] + index + 1, true};
    const uint8_t* kept = step_.kept + sequence * step_.count;
    return {head, place, lengths_[size(sequence)] + std::count_if(kept + first_, kept + place + 1, std::identity()),
            kept[place] != 0};
  }

  // A row panel's tokens, none of which is padding where there are several, and a segment of what they see.
  struct Piece {
    Token first;
    int64_t row_panel, tokens, segment;
  };
  Piece piece_of(int64_t index) const {
    const int64_t row_panel = index / segments_, first = row_panel % row_panels_ * row_panel_;
    return {token(row_panel / row_panels_, first), row_panel, std::min(row_panel_, tokens_ - first),
            first_segment_ + index % segments_};
  }
  static Token later(const Token& token, int64_t by) {
    return {token.head, token.place + by, token.length + by, token.kept};
  }

  // Items of a row panel and a segment are neighbours.
  int64_t item_of(const Token& token, int64_t segment) const {
    const int64_t index = token.place - first_, row_panel = token.head * row_panels_ + index / row_panel_;
    return (row_panel * segments_ + segment - first_segment_) * row_panel_ + index % row_panel_;
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

  // A row panel's queries, of each token and together. A wave of one token does without: whoever wants its queries
  // makes them then, which takes less than it takes all threads to wait for each other.
  void prepare(int64_t row_panel) {
    const Token first = token(row_panel / row_panels_, row_panel % row_panels_ * row_panel_);
    const int64_t tokens = std::min(row_panel_, tokens_ - row_panel % row_panels_ * row_panel_);
    for (int64_t i = 0; i < tokens; ++i) {
      const Token mine = token(first.head, first.place - first_ + i);
      if (mine.kept) queries_of(mine).set(query_rows(mine, 1), channels_);
    }
    if (tiles_ && first.kept) row_panel_tiles_[size(row_panel)].set(query_rows(first, tokens), channels_);
    if (!row_panel_queries_.empty()) row_panel_queries_[size(row_panel)].set(query_rows(first, tokens), channels_);
  }

  KvQueries its_queries(const Token& token) {
    static thread_local Queries own;
    if (tokens_ > 1) return queries_of(token).view();
    own.set(query_rows(token, 1), channels_);
    return own.view();
  }

  void add_keys(int64_t head) {
    for (int64_t i = 0; i < tokens_; ++i) {
      const Token mine = token(head, i);
      if (!mine.kept) continue;
      cache_.append_key(head / heads_, head % heads_, mine.length - 1, step_.keys + input(mine));
      if (!rows_) continue;
      const KvQueries queries = its_queries(mine);
      for_changing(mine, [&](const Seen& part) {
        score_blocks(mine, part, queries);
        find_largest(mine, part, recent_);
      });
    }
  }

  void score(int64_t index) {
    const Piece piece = piece_of(index);
    if (!piece.first.kept) return;
    const Seen part = stable_part(piece);
    if (part.first_block < part.last_block) tiles_ ? score_tiles(piece, part) : score_rows(piece, part);
    for (int64_t i = 0; i < piece.tokens; ++i) {
      const Token mine = later(piece.first, i);
      find_largest(mine, seen(mine, piece.segment, 0, stable_blocks(mine.head)), largest_);
    }
  }

  void mix(int64_t index) {
    static thread_local std::vector<float> together;
    static thread_local std::vector<uint8_t> values;
    static thread_local std::vector<int32_t> sums;
    static thread_local std::vector<float> units;
    const Piece piece = piece_of(index);
    if (!piece.first.kept) return;
    const int64_t item = item_of(piece.first, piece.segment), rows = piece.tokens * rows_;
    float* parts = parts_ + item * rows_ * channels_;
    std::fill_n(shares_ + item * rows_, rows, 0.0f);
    std::fill_n(parts, rows * channels_, 0.0f);
    values.resize(size(rows * kSegment));
    sums.resize(size(rows * kSegmentBlocks));
    units.resize(sums.size());
    const Weights mine = {values.data(), sums.data(), units.data()};
    const KvChannels all = {0, channels_};
    weigh(piece.first, stable_part(piece), piece.tokens, mine);
    for (int64_t i = 0; i < piece.tokens; ++i) {
      const Token token = later(piece.first, i);
      weigh(token, seen(token, piece.segment, stable_blocks(token.head), kAll), 1, weights_of(token, piece.segment));
    }
    if (piece.tokens == 1) return mix_blocks(piece.first, stable_part(piece), 1, mine, all, parts);
    together.assign(size(rows * channels_), 0.0f);
    mix_blocks(piece.first, stable_part(piece), piece.tokens, mine, all, together.data());
    // [channels / 16, tokens, rows, 16] to each token's [channels / 16, rows, 16].
    const int64_t of_token = rows_ * kKvLanes;
    for (int64_t i = 0; i < channels_ / kKvLanes * piece.tokens; ++i) {
      const int64_t lanes = i / piece.tokens, token = i % piece.tokens;
      std::copy_n(together.data() + i * of_token, of_token, parts + token * rows_ * channels_ + lanes * of_token);
    }
  }

  // One part of a head's channels.
  void add_values(int64_t part) {
    const int64_t head = part / parts_of_head_, index = part % parts_of_head_, units = kv_units(channels_);
    const int64_t first = index * units / parts_of_head_, last = (index + 1) * units / parts_of_head_;
    const KvChannels mine = {first * kKvLanes, (last - first) * kKvLanes};
    for (int64_t i = 0; i < tokens_; ++i) {
      const Token its = token(head, i);
      if (its.kept) {
        cache_.append_value(head / heads_, head % heads_, its.length - 1, step_.values + input(its), mine);
      }
      if (!rows_) continue;
      if (its.kept) {
        for_changing(its, [&](const Seen& blocks) {
          float* parts = parts_ + item_of(its, blocks.segment) * rows_ * channels_;
          mix_blocks(its, blocks, 1, weights_of(its, blocks.segment), mine, parts);
        });
      }
      join(its, mine);
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

  // Of what the first of a row panel sees, which is no less than the others do of it.
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

  void score_blocks(const Token& token, const Seen& part, const KvQueries& queries) {
    float* scores = scores_ + item_of(token, part.segment) * rows_ * kSegment - part.segment * kSegment;
    for (int64_t block = part.first_block; block < part.last_block; ++block) {
      const KvUnits keys = cache_.keys(token.head / heads_, token.head % heads_, block, token.length);
      score_kernel_(block_of(keys), channels_, queries, step_.scaling, scores + block * kKvTokens);
    }
  }

  void score_rows(const Piece& piece, const Seen& part) {
    score_blocks(piece.first, part,
                 row_panel_ > 1 ? row_panel_queries_[size(piece.row_panel)].view() : its_queries(piece.first));
  }

  void score_tiles(const Piece& piece, const Seen& part) {
    static thread_local QueryTiles own;
    if (tokens_ == 1) own.set(query_rows(piece.first, 1), channels_);
    const KvQueryTiles queries = (tokens_ == 1 ? own : row_panel_tiles_[size(piece.row_panel)]).view();
    const Token& token = piece.first;
    float* scores = scores_ + item_of(token, part.segment) * rows_ * kSegment - part.segment * kSegment;
    in_runs(token, part, 0, 0, [&](const KvBlock* blocks, int64_t first, int64_t count) {
      score_tiles_kernel_(blocks, count, channels_, queries, step_.scaling, scores + first * kKvTokens,
                          scratch_of(queries.rows));
    });
  }

  // Of what each of a token's rows sees of a part.
  void find_largest(const Token& token, const Seen& part, float* largest) const {
    const int64_t item = item_of(token, part.segment);
    for (int64_t row = item * rows_; row < (item + 1) * rows_; ++row) {
      const float* scores = scores_ + row * kSegment + part.first - part.segment * kSegment;
      largest[row] = largest_kernel_(scores, part.last - part.first);
    }
  }

  // Calls work(blocks, first, count) for runs of a part's blocks, of their keys (0) or values from a unit on, as
  // kernels of tiles take them; one at a time where memory is that of the last.
  template <class Work>
  void in_runs(const Token& token, const Seen& part, int kind, int64_t unit, const Work& work) const {
    const int64_t sequence = token.head / heads_, head = token.head % heads_;
    KvBlock blocks[kKvTileBlocks];
    for (int64_t first = part.first_block, count; first < part.last_block; first += count) {
      for (count = 0; count < std::min(kKvTileBlocks, part.last_block - first);) {
        blocks[count] = block_of(cache_.units(sequence, head, first + count, token.length, kind).unit(unit));
        if (cache_.is_thin(sequence, first + count++)) break;
      }
      work(blocks, first, count);
    }
  }

  uint8_t* scratch_of(int64_t rows) const {
    static thread_local KvMemory memory;
    const int64_t bytes = kv_tile_scratch(channels_, rows);
    if (memory.size() < bytes) memory = KvMemory(bytes);
    return memory.data();
  }

  // Of each row weights a segment apart, and of each of its blocks their sum and what 1 stands for.
  struct Weights {
    uint8_t* values;
    int32_t* sums;
    float* units;
  };
  Weights weights_of(const Token& token, int64_t segment) const {
    const int64_t row = item_of(token, segment) * rows_, group = row * kSegmentBlocks;
    return {weights_.values + row * kSegment, weights_.sums + group, weights_.units + group};
  }

  // Weights that `tokens` tokens have for a part of the first one's, from its first block on, and their sums.
  void weigh(const Token& first, const Seen& part, int64_t tokens, const Weights& to) {
    const int64_t item = item_of(first, part.segment), count = part.last_block - part.first_block;
    if (!count) return;
    for (int64_t row = 0; row < tokens * rows_; ++row) {
      const Token token = later(first, row / rows_);
      float* scores =
          scores_ + (item * rows_ + row) * kSegment - part.segment * kSegment + part.first_block * kKvTokens;
      hide_unseen(scores, part, std::clamp(cache_.first_seen(token.length), part.first, part.last));
      weigh_kernel_(scores, count * kKvTokens, largest_of_all(token, row % rows_), to.values + row * kSegment,
                    to.sums + row * kSegmentBlocks, to.units + row * kSegmentBlocks);
      for (int64_t i = row * kSegmentBlocks; i < row * kSegmentBlocks + count; ++i) {
        shares_[item * rows_ + row] += static_cast<float>(to.sums[i]) * to.units[i];
      }
    }
  }

  // What they get from some channels of its values, added to parts [channels / 16, tokens, rows, 16].
  void mix_blocks(const Token& first, const Seen& part, int64_t tokens, const Weights& weights, const KvChannels& which,
                  float* parts) {
    const int64_t rows = tokens * rows_;
    parts += which.first * rows;
    const auto of = [&](int64_t block) -> KvWeights {
      const int64_t i = block - part.first_block;
      return {weights.values + i * kKvTokens, weights.sums + i, weights.units + i, rows};
    };
    if (tiles_ && rows > kFewRows) {
      in_runs(first, part, 1, which.first / kKvLanes, [&](const KvBlock* blocks, int64_t block, int64_t run) {
        mix_tiles_kernel_(blocks, run, which.count, of(block), parts, scratch_of(rows));
      });
      return;
    }
    for (int64_t block = part.first_block; block < part.last_block; ++block) {
      const KvUnits values = cache_.values(first.head / heads_, first.head % heads_, block, first.length);
      mix_kernel_(block_of(which.of(values)), which.count, of(block), parts);
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
      const int64_t at = item_of(token, s) * rows_ + row;
      largest = std::max({largest, largest_[at], recent_[at]});
    }
    return largest;
  }

  // Parts are [channels / 16, rows, 16]; outputs of each row [channels].
  void join(const Token& token, const KvChannels& which) const {
    float* to = step_.out + output(token) + which.first;
    for (int64_t row = 0; row < rows_; ++row, to += step_.count * channels_) {
      std::fill(to, to + which.count, 0.0f);
      if (!token.kept) continue;
      float share = 0;
      for (int64_t s = first_segment_; s < segments_of(token.length); ++s) {
        const float* part = parts_ + item_of(token, s) * rows_ * channels_ + which.first * rows_ + row * kKvLanes;
        for (int64_t i = 0; i < which.count; i += kKvLanes, part += rows_ * kKvLanes) {
          for (int lane = 0; lane < kKvLanes; ++lane) to[i + lane] += part[lane];
        }
        share += shares_[item_of(token, s) * rows_ + row];
      }
      for (int64_t i = 0; i < which.count; ++i) to[i] /= share;
    }
  }

  KernelOf<ops::score_f32_bfp_bfp> const score_kernel_ = choose<ops::score_f32_bfp_bfp>();
  KernelOf<ops::mix_f32_u8_bfp> const mix_kernel_ = choose<ops::mix_f32_u8_bfp>();
  KernelOf<ops::score_f32_bf16_bfp> const score_tiles_kernel_ = choose<ops::score_f32_bf16_bfp>();
  KernelOf<ops::mix_f32_bf16_bfp> const mix_tiles_kernel_ = choose<ops::mix_f32_bf16_bfp>();
  KernelOf<ops::softmax_u8_f32> const weigh_kernel_ = choose<ops::softmax_u8_f32>();
  KernelOf<ops::max_f32> const largest_kernel_ = choose<ops::max_f32>();
  KvCache& cache_;
  const KvStep& step_;
  const int threads_;
  const int64_t heads_, all_, channels_, rows_;
  const int64_t parts_of_head_;   // whose values are added by themselves, so that all threads have some
  std::vector<int64_t> lengths_;  // before the wave
  int64_t first_ = 0, tokens_ = 1;
  int64_t first_segment_ = 0, segments_ = 0;  // those that some token of the wave sees
  int64_t row_panel_ = 1, row_panels_ = 1;    // tokens that are multiplied together, and how many row panels there are
  bool tiles_ = false;                        // whether matrix units take a row panel
  std::vector<Queries> queries_, row_panel_queries_;  // [heads, tokens], [heads, row panels]
  std::vector<QueryTiles> row_panel_tiles_;           // instead
  // Of each item, which is a segment of what a token of the wave sees as a head has it: scores, the largest of those
  // that are the same for all of the wave and of the others, weights for the others' values, and the outputs' parts.
  float *scores_ = nullptr, *largest_ = nullptr, *recent_ = nullptr, *parts_ = nullptr, *shares_ = nullptr;
  Weights weights_ = {};
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
