#include "dispatch/kv_bfp_prompt.h"

#include <cstring>
#include <limits>

#include "dispatch/checks.h"
#include "dispatch/kv_bfp_attention_plan.h"
#include "simd/math.h"

namespace tilepress {
namespace {

constexpr int64_t kLeastTokens = 32;                 // of a prompt
constexpr int64_t kMostScores = 1 << 19;             // floats of a block, so that they stay in the second cache
constexpr int64_t kMostRows = 128, kLeastRows = 32;  // of a block, if its context is short, and if it is long
constexpr float kHidden = -1e30f;                    // a score whose weight is 0

int64_t segment_of(int64_t page) { return page / kKvSegmentPages; }

// The same bits on every machine: unlike kernels of floats, this file is compiled without contraction.
float exp_of(float x) { return exp(splat<Floats>(x))[0]; }

template <class T>
T* grown(std::vector<T>& memory, int64_t count) {
  if (memory.size() < size(count)) memory.resize(size(count));
  return memory.data();
}

}  // namespace

// A thread's own; rows of scores and weights are a segment apart.
struct BfpPrompt::Memory {
  KvMemory lines;
  float *scores, *narrow_scores;  // [segments, rows, kKvSegment]; of one segment, of a page's narrow version
  float *partials, *totals;       // [channels / 16, rows, 16]: of a segment, of all
  uint8_t *weights, *scratch, *page;
  std::vector<int32_t> sums;
  std::vector<float> units, largest, weight_sums, segment_sums;
  QueryTiles queries;
};

bool BfpPrompt::serves(const BfpKvStore& store, const KvStep& step, int64_t tokens) {
  const int64_t window = store.sizes().window;
  return tokens >= kLeastTokens && step.queries && !step.stored && BfpAttentionPlan::prefers_tiles() &&
         (!window || window >= store.truncated_later());
}

BfpPrompt::BfpPrompt(const BfpSlab& slab)
    : slab_(slab),
      store_(slab.store),
      step_(slab.step),
      total_heads_(store_.sizes().batch * store_.sizes().heads),
      channels_(store_.sizes().channels),
      block_tokens_(kKvPageTokens),
      blocks_(0) {
  int64_t longest = 0;
  for (int64_t i = 0; i < store_.sizes().batch; ++i) longest = std::max(longest, slab.after(i));
  const auto too_many = [&](int64_t rows) {
    return rows > kMostRows || (rows > kLeastRows && rows * longest > kMostScores);
  };
  while (block_tokens_ > 1 && too_many(block_tokens_ * token_rows())) block_tokens_ /= 2;
  for (int64_t i = 0; i < store_.sizes().batch; ++i) {
    const int64_t mine = (slab.after(i) - 1) / block_tokens_ - slab.before(i) / block_tokens_ + 1;
    blocks_ = std::max(blocks_, mine);
  }
}

PromptBlock BfpPrompt::block(int64_t index) const {
  const int64_t turn = index / total_heads_, head = index % total_heads_, sequence = head / store_.sizes().heads;
  const int64_t number = turn % 2 ? turn / 2 : blocks_ - 1 - turn / 2;
  const int64_t from = (slab_.before(sequence) / block_tokens_ + number) * block_tokens_;
  const int64_t first = std::max(from, slab_.before(sequence));
  const int64_t tokens = std::max<int64_t>(std::min(from + block_tokens_, slab_.after(sequence)) - first, 0);
  return {head,
          sequence,
          head % store_.sizes().heads,
          first,
          tokens,
          tokens * token_rows(),
          store_.first_seen(first + 1) / kKvPageTokens,
          first / kKvPageTokens};
}

BfpPrompt::Memory& BfpPrompt::own_memory(const PromptBlock& block) const {
  static thread_local Memory memory;
  const int64_t segments = segment_of(block.last_page) - segment_of(block.first_page) + 1, rows = block.rows;
  const int64_t floats = rows * ((segments + 1) * kKvSegment + 2 * channels_);
  const int64_t scratch = kv_tile_scratch(channels_, rows);
  const int64_t page = kv_units(channels_) * (kKvUnitCodes + kKvUnitLows + kKvUnitExponents);
  const int64_t bytes = floats * int64_t{sizeof(float)} + rows * kKvSegment + scratch + page;
  if (memory.lines.size() < bytes) memory.lines = KvMemory(bytes);
  memory.scores = memory.lines.as<float>();
  memory.narrow_scores = memory.scores + segments * rows * kKvSegment;
  memory.partials = memory.narrow_scores + rows * kKvSegment;
  memory.totals = memory.partials + rows * channels_;
  memory.scratch = reinterpret_cast<uint8_t*>(memory.totals + rows * channels_);
  memory.weights = memory.scratch + scratch;
  memory.page = memory.weights + rows * kKvSegment;
  grown(memory.sums, rows * kKvSegmentPages);
  grown(memory.units, rows * kKvSegmentPages);
  memory.largest.resize(size(rows));
  memory.segment_sums.resize(size(rows));
  memory.weight_sums.assign(size(rows), 0.0f);
  std::fill_n(memory.totals, rows * channels_, 0.0f);
  return memory;
}

void BfpPrompt::attend(int64_t index) const {
  const PromptBlock block = this->block(index);
  if (!block.tokens) return;
  Memory& memory = own_memory(block);
  const int64_t stride = step_.count * channels_, in_step = block.first - store_.length(block.sequence);
  const float* queries = step_.queries + (block.head * token_rows() * step_.count + in_step) * channels_;
  memory.queries.set({queries, token_rows(), stride, block.tokens, channels_}, channels_);
  score(block, memory);
  set_max(block, memory);
  for (int64_t first = block.first_page, end; first <= block.last_page; first = end) {
    end = std::min((segment_of(first) + 1) * kKvSegmentPages, block.last_page + 1);
    softmax(block, first, end, memory);
    mix(block, first, end, memory);
    add_segment(block, memory);
  }
  store_outputs(block, memory);
}

// Scores from a page's first token on, of the block's first row.
float* BfpPrompt::scores(const Memory& memory, const PromptBlock& block, int64_t page) const {
  const int64_t segment = segment_of(page) - segment_of(block.first_page);
  return memory.scores + segment * block.rows * kKvSegment + page % kKvSegmentPages * kKvPageTokens;
}

// All tokens of the block have come, and later ones have not, where it is asked for keys: those are not seen.
BfpPrompt::Version BfpPrompt::version(const PromptBlock& block, int64_t page) const {
  if (page < slab_.first_page(block.sequence)) return Version::stored;
  if (!store_.truncated_later()) return Version::wide;
  const int64_t first = std::max(page * kKvPageTokens, store_.config().initial), end = (page + 1) * kKvPageTokens;
  if (first >= narrow_before(block.end() - 1)) return Version::wide;
  return end <= narrow_before(block.first) ? Version::narrow : Version::changing;
}

ConstKvUnits BfpPrompt::units(const PromptBlock& block, int64_t page, Version version, int part) const {
  if (version == Version::stored) {
    return store_.units(block.sequence, block.kv_head, page, slab_.before(block.sequence), part);
  }
  return version == Version::wide ? slab_.wide(block.head, page, part) : slab_.narrow(block.head, page, part);
}

// Calls tiles(pages, first page, count) for runs of pages as tile kernels take them, and changing(page) in their place.
// A sparse page is a run of its own: the next one overwrites it. Values of the last page change in any case.
template <class Tiles, class Changing>
void BfpPrompt::for_pages(const PromptBlock& block, int64_t first, int64_t end, int part, const Tiles& tiles,
                          const Changing& changing) const {
  ConstKvUnits pages[kKvTilePages];
  int64_t count = 0;
  for (int64_t page = first; page < end; ++page) {
    const Version version = part && page == block.last_page ? Version::changing : this->version(block, page);
    const bool changes = version == Version::changing, is_sparse = store_.is_sparse(block.sequence, page);
    if (count && (changes || is_sparse)) tiles(pages, page - count, count), count = 0;
    if (changes) {
      changing(page);
      continue;
    }
    pages[count++] = units(block, page, version, part);
    if (count == kKvTilePages || is_sparse) tiles(pages, page + 1 - count, count), count = 0;
  }
  if (count) tiles(pages, end - count, count);
}

void BfpPrompt::score(const PromptBlock& block, Memory& memory) const {
  const auto tiles = [&](const ConstKvUnits* pages, int64_t first, int64_t count) {
    score_(pages, count, channels_, memory.queries.view(), step_.scaling, scores(memory, block, first), memory.scratch);
  };
  for (int64_t first = block.first_page, end; first <= block.last_page; first = end) {
    end = std::min((segment_of(first) + 1) * kKvSegmentPages, block.last_page + 1);
    for_pages(block, first, end, 0, tiles, [&](int64_t page) { score_both(block, page, memory); });
    if (step_.softcap == 0) continue;
    for (int64_t row = 0; row < block.rows; ++row) {
      cap_(scores(memory, block, first) + row * kKvSegment, (end - first) * kKvPageTokens, step_.softcap);
    }
  }
}

// A page some of whose tokens are wide for some queries and narrow for others.
void BfpPrompt::score_both(const PromptBlock& block, int64_t page, Memory& memory) const {
  float *wide = scores(memory, block, page), *narrow = memory.narrow_scores;
  for (const Version version : {Version::wide, Version::narrow}) {
    const ConstKvUnits keys = units(block, page, version, 0);
    score_(&keys, 1, channels_, memory.queries.view(), step_.scaling, version == Version::wide ? wide : narrow,
           memory.scratch);
  }
  for (int64_t row = 0; row < block.rows; ++row) {
    const int64_t token = block.first + row / token_rows();
    const int64_t count = std::clamp<int64_t>(narrow_before(token) - page * kKvPageTokens, 0, kKvPageTokens);
    std::copy_n(narrow + row * kKvSegment, count, wide + row * kKvSegment);
  }
}

int64_t BfpPrompt::first_seen(const PromptBlock& block, int64_t token) const {
  return std::max(store_.first_seen(token + 1), block.first_page * kKvPageTokens);
}

// The largest score of each row, its sink included.
void BfpPrompt::set_max(const PromptBlock& block, Memory& memory) const {
  for (int64_t row = 0; row < block.rows; ++row) {
    const int64_t token = block.first + row / token_rows();
    const float* sinks = step_.sinks ? step_.sinks + block.kv_head * token_rows() : nullptr;
    float largest = sinks ? sinks[row % token_rows()] : -std::numeric_limits<float>::infinity();
    for (int64_t first = first_seen(block, token), end; first <= token; first = end) {
      end = std::min((first / kKvSegment + 1) * kKvSegment, token + 1);
      const float* from = scores(memory, block, first / kKvPageTokens) + row * kKvSegment + first % kKvPageTokens;
      largest = std::max(largest, max_(from, end - first));
    }
    memory.largest[size(row)] = largest;
  }
}

// Weights for pages of one segment, and their sums. Tokens that a query does not see get weights of 0.
void BfpPrompt::softmax(const PromptBlock& block, int64_t first, int64_t end, Memory& memory) const {
  const int64_t begin = first * kKvPageTokens, last = end * kKvPageTokens;
  for (int64_t row = 0; row < block.rows; ++row) {
    const int64_t token = block.first + row / token_rows(), at = row * kKvSegmentPages;
    float* from = scores(memory, block, first) + row * kKvSegment;
    std::fill(from, from + std::clamp(first_seen(block, token), begin, last) - begin, kHidden);
    std::fill(from + std::clamp(token + 1, begin, last) - begin, from + last - begin, kHidden);
    int32_t* sums = memory.sums.data() + at;
    float *units = memory.units.data() + at, sum = 0;
    softmax_(from, last - begin, memory.largest[size(row)], memory.weights + row * kKvSegment, sums, units);
    for (int64_t i = 0; i < end - first; ++i) sum += static_cast<float>(sums[i]) * units[i];
    memory.segment_sums[size(row)] = sum;
  }
}

void BfpPrompt::mix(const PromptBlock& block, int64_t first, int64_t end, Memory& memory) const {
  std::fill_n(memory.partials, block.rows * channels_, 0.0f);
  const auto tiles = [&](const ConstKvUnits* pages, int64_t page, int64_t count) {
    const int64_t i = page - first;
    const KvWeights weights = {memory.weights + i * kKvPageTokens, memory.sums.data() + i, memory.units.data() + i,
                               block.rows, block.rows};
    mix_(pages, count, channels_, weights, memory.partials, memory.scratch);
  };
  for_pages(block, first, end, 1, tiles, [&](int64_t page) { mix_changing(block, page, first, memory); });
}

// Token by token: the page's values as each token's query sees them. `first`: the segment's first page.
void BfpPrompt::mix_changing(const PromptBlock& block, int64_t page, int64_t first, Memory& memory) const {
  const int64_t units = kv_units(channels_), rows = token_rows(), i = page - first;
  const KvUnits values = {memory.page, store_.config().high > 4 ? memory.page + units * kKvUnitCodes : nullptr,
                          memory.page + units * (kKvUnitCodes + kKvUnitLows)};
  for (int64_t token = block.first; token < block.end(); ++token) {
    set_values(block, page, token, values);
    const int64_t row = (token - block.first) * rows, at = row * kKvSegmentPages + i;
    const KvWeights weights = {memory.weights + row * kKvSegment + i * kKvPageTokens, memory.sums.data() + at,
                               memory.units.data() + at, rows, block.rows};
    mix_rows_(values, channels_, weights, memory.partials + row * kKvLanes);
  }
}

// The page's values when `token` has come: from what they were for the token before, unless it is the block's first.
void BfpPrompt::set_values(const PromptBlock& block, int64_t page, int64_t token, const KvUnits& values) const {
  const int64_t from = page * kKvPageTokens, initial = store_.config().initial - from;
  const bool is_first = token == block.first, fills = page == block.last_page;
  const int64_t narrow_end = store_.config().local ? token + 1 - store_.config().local - from : kKvPageTokens;
  if (fills) {
    KvOpenValues open = slab_.open_values(block.head, page, token - from + 1, initial, narrow_end);
    open.all = is_first;
    if (is_first) std::memset(values.codes, 0, size(kv_units(channels_) * kKvUnitCodes));
    if (is_first && values.lows) std::memset(values.lows, 0, size(kv_units(channels_) * kKvUnitLows));
    choose<ops::quantize_value_bfp>()(values, channels_, open);
    if (is_first) return;
  } else if (is_first) {
    const KvUnits wide = slab_.wide(block.head, page, 1);
    std::memcpy(values.codes, wide.codes, size(kv_units(channels_) * kKvUnitCodes));
    std::memcpy(values.exponents, wide.exponents, size(kv_units(channels_) * kKvUnitExponents));
    if (values.lows) std::memcpy(values.lows, wide.lows, size(kv_units(channels_) * kKvUnitLows));
  }
  const int64_t end = std::min(narrow_before(token) - from, kKvPageTokens);
  for (int64_t slot = std::max<int64_t>(is_first ? 0 : end - 1, std::max<int64_t>(initial, 0)); slot < end; ++slot) {
    const KvToken old = {static_cast<int>(slot), store_.config().mantissa, store_.config().nearest};
    if (store_.truncated_later()) choose<ops::truncate_value_bfp>()(values, channels_, old);
  }
}

void BfpPrompt::add_segment(const PromptBlock& block, Memory& memory) const {
  for (int64_t i = 0; i < block.rows * channels_; ++i) memory.totals[i] += memory.partials[i];
  for (size_t row = 0; row < size(block.rows); ++row) memory.weight_sums[row] += memory.segment_sums[row];
}

// Outputs [query heads, tokens, channels] from totals [channels / 16, rows, 16].
void BfpPrompt::store_outputs(const PromptBlock& block, const Memory& memory) const {
  const int64_t in_step = block.first - store_.length(block.sequence), rows = token_rows();
  for (int64_t row = 0; row < block.rows; ++row) {
    float sum = memory.weight_sums[size(row)];
    if (step_.sinks) sum += exp_of(step_.sinks[block.kv_head * rows + row % rows] - memory.largest[size(row)]);
    float* to = step_.out + ((block.head * rows + row % rows) * step_.count + in_step + row / rows) * channels_;
    for (int64_t at = 0; at < channels_; at += kKvLanes) {
      const float* from = memory.totals + at * block.rows + row * kKvLanes;
      for (int lane = 0; lane < kKvLanes; ++lane) to[at + lane] = from[lane] / sum;
    }
  }
}

}  // namespace tilepress
