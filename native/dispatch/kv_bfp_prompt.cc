#include "dispatch/kv_bfp_prompt.h"

#include <cstring>
#include <limits>

#include "dispatch/checks.h"
#include "simd/math.h"

namespace tilepress {
namespace {

constexpr int64_t kLeastTokens = 32;  // of a prompt
// Rows of a block, if its context is short and if it is long, such that its scores stay in the second cache.
constexpr int64_t kMostRows = 128, kLeastRows = 64, kMostScores = 1 << 19;
constexpr float kHidden = -1e30f;  // a score whose weight is 0

int64_t segment_of(int64_t page) { return page / kKvSegmentPages; }

// The same bits on every machine: unlike kernels of floats, this file is compiled without contraction.
float exp_of(float x) { return exp(splat<Floats>(x))[0]; }

using FourFloats [[gnu::vector_size(16)]] = float;
using FourIndices [[gnu::vector_size(16)]] = int32_t;

// to [16 rows, 16 channels] = from [16 channels, 16 rows].
void transpose(const float* from, float* to) {
  for (int64_t i = 0; i < kKvLanes; i += 4) {
    for (int64_t j = 0; j < kTileRows; j += 4) {
      FourFloats a[4], b[4];
      for (int k = 0; k < 4; ++k) std::memcpy(&a[k], from + (i + k) * kTileRows + j, sizeof a[k]);
      for (int k = 0; k < 2; ++k) {
        b[k] = __builtin_shuffle(a[k], a[k + 2], FourIndices{0, 4, 1, 5});
        b[k + 2] = __builtin_shuffle(a[k], a[k + 2], FourIndices{2, 6, 3, 7});
      }
      for (int k = 0; k < 2; ++k) {
        a[2 * k] = __builtin_shuffle(b[2 * k], b[2 * k + 1], FourIndices{0, 4, 1, 5});
        a[2 * k + 1] = __builtin_shuffle(b[2 * k], b[2 * k + 1], FourIndices{2, 6, 3, 7});
      }
      for (int k = 0; k < 4; ++k) std::memcpy(to + (j + k) * kKvLanes + i, &a[k], sizeof a[k]);
    }
  }
}

}  // namespace

// A thread's own.
struct BfpPrompt::Memory {
  KvMemory lines;
  float *scores, *narrow_scores;  // [row panels, pages, 32, 16]; of a page's narrow version
  float *partials, *totals;       // [channels / 16, row panels, 16, 16]: of a segment, of those before
  float *open_weights, *open;     // of the last page: [rows, 32], [rows, channels]
  uint16_t *weights, *split;      // tiles [row panels, pages of a segment], [row panels, wide and narrow]
  uint8_t* scratch;
  std::vector<float> largest, weight_sums, segment_sums;  // [row panels, 16]
  QueryColumns queries;
};

bool BfpPrompt::serves(const BfpKvStore& store, const KvStep& step, int64_t tokens) {
  const int64_t window = store.sizes().window;
  const bool on_tiles = find<ops::score_f32_bfp_bf16>()->isa >= find<ops::score_f32_bfp_bfp>()->isa;
  return on_tiles && tokens >= kLeastTokens && step.queries && !step.stored &&
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
  const int64_t rows = tokens * token_rows();
  return {head,
          sequence,
          head % store_.sizes().heads,
          first,
          tokens,
          rows,
          kv_row_panels(rows),
          store_.first_seen(first + 1) / kKvPageTokens,
          first / kKvPageTokens};
}

BfpPrompt::Memory& BfpPrompt::own_memory(const PromptBlock& block) const {
  static thread_local Memory memory;
  const int64_t panels = block.row_panels, rows = panels * kTileRows;
  const int64_t floats[] = {panels * block.pages() * kKvScores,
                            panels * kKvScores,
                            rows * channels_,
                            rows * channels_,
                            rows * kKvPageTokens,
                            rows * channels_};
  float** const parts[] = {&memory.scores, &memory.narrow_scores, &memory.partials,
                           &memory.totals, &memory.open_weights,  &memory.open};
  const int64_t words = panels * (kKvSegmentPages + 2) * kKvTileWords;
  int64_t all = 0;
  for (const int64_t count : floats) all += count;
  const int64_t bytes = all * int64_t{sizeof(float)} + words * 2 + kv_left_scratch(channels_);
  if (memory.lines.size() < bytes) memory.lines = KvMemory(bytes);
  float* next = memory.lines.as<float>();
  for (size_t i = 0; i < std::size(parts); ++i) *parts[i] = next, next += floats[i];
  memory.weights = reinterpret_cast<uint16_t*>(next);
  memory.split = memory.weights + panels * kKvSegmentPages * kKvTileWords;
  memory.scratch = reinterpret_cast<uint8_t*>(memory.weights + words);
  memory.weight_sums.assign(size(rows), 0.0f);
  memory.segment_sums.resize(size(rows));
  std::fill_n(memory.totals, rows * channels_, 0.0f);
  return memory;
}

void BfpPrompt::attend(int64_t index) const {
  const PromptBlock block = this->block(index);
  if (!block.tokens) return;
  Memory& memory = own_memory(block);
  set_queries(block, memory);
  score(block, memory);
  for (int64_t first = block.first_page, end; first <= block.last_page; first = end) {
    if (first > block.first_page) {
      for (int64_t i = 0; i < block.row_panels * kTileRows * channels_; ++i) memory.totals[i] += memory.partials[i];
    }
    end = std::min((segment_of(first) + 1) * kKvSegmentPages, block.last_page + 1);
    softmax(block, first, end, memory);
    mix(block, first, end, memory);
  }
  store_outputs(block, memory);
}

void BfpPrompt::set_queries(const PromptBlock& block, Memory& memory) const {
  const int64_t stride = step_.count * channels_, in_step = block.first - store_.length(block.sequence);
  const float* queries = step_.queries + (block.head * token_rows() * step_.count + in_step) * channels_;
  memory.queries.set({queries, token_rows(), stride, block.tokens, channels_}, channels_);
  memory.largest.assign(size(block.row_panels * kTileRows), -std::numeric_limits<float>::infinity());
  for (int64_t row = 0; step_.sinks && row < block.rows; ++row) {
    memory.largest[size(row)] = step_.sinks[block.kv_head * token_rows() + row % token_rows()];
  }
}

bool BfpPrompt::is_seen_whole(const PromptBlock& block, int64_t page) const {
  return page * kKvPageTokens >= store_.first_seen(block.end()) && page < block.last_page;
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

// Runs of pages as the kernel takes them. Units of a sparse page are overwritten by those of the next.
void BfpPrompt::score(const PromptBlock& block, Memory& memory) const {
  ConstKvUnits keys[kKvTilePages];
  int64_t count = 0;
  for (int64_t page = block.first_page; page <= block.last_page; ++page) {
    const Version version = this->version(block, page);
    const bool alone = version == Version::changing || store_.is_sparse(block.sequence, page) ||
                       !is_seen_whole(block, page) || step_.softcap != 0;
    if (count && (alone || count == kKvTilePages)) score_pages(block, keys, page - count, count, memory), count = 0;
    if (version == Version::changing) {
      score_both(block, page, memory);
    } else {
      keys[count++] = units(block, page, version, 0);
      if (alone) score_pages(block, keys, page, 1, memory), count = 0;
    }
  }
  if (count) score_pages(block, keys, block.last_page + 1 - count, count, memory);
}

void BfpPrompt::score_pages(const PromptBlock& block, const ConstKvUnits* keys, int64_t first, int64_t count,
                            Memory& memory) const {
  const bool is_whole = is_seen_whole(block, first) && step_.softcap == 0;
  score_({keys, count, channels_, memory.queries.data(), block.row_panels, step_.scaling,
          memory.scores + (first - block.first_page) * kKvScores, block.pages() * kKvScores,
          is_whole ? memory.largest.data() : nullptr},
         memory.scratch);
  if (!is_whole) hide_unseen(block, first, memory);
}

// A page some of whose tokens are wide for some queries and narrow for others.
void BfpPrompt::score_both(const PromptBlock& block, int64_t page, Memory& memory) const {
  const int64_t stride = block.pages() * kKvScores;
  float* const wide = memory.scores + (page - block.first_page) * kKvScores;
  const ConstKvUnits versions[] = {units(block, page, Version::wide, 0), units(block, page, Version::narrow, 0)};
  const auto score = [&](const ConstKvUnits& keys, float* scores, int64_t apart) {
    score_({&keys, 1, channels_, memory.queries.data(), block.row_panels, step_.scaling, scores, apart, nullptr},
           memory.scratch);
  };
  score(versions[0], wide, stride);
  score(versions[1], memory.narrow_scores, kKvScores);
  for (int64_t row = 0; row < block.row_panels * kTileRows; ++row) {
    const int64_t count = narrow_before(token_of(block, row)) - page * kKvPageTokens, lane = row % kTileRows;
    for (int64_t i = 0; i < std::min(count, kKvPageTokens); ++i) {
      wide[row / kTileRows * stride + i * kTileRows + lane] =
          memory.narrow_scores[row / kTileRows * kKvScores + i * kTileRows + lane];
    }
  }
  hide_unseen(block, page, memory);
}

// Soft-caps scores of a page, hides those of tokens that a query does not see, and raises the largest by the others.
void BfpPrompt::hide_unseen(const PromptBlock& block, int64_t page, Memory& memory) const {
  for (int64_t panel = 0; panel < block.row_panels; ++panel) {
    float* scores = memory.scores + (panel * block.pages() + page - block.first_page) * kKvScores;
    if (step_.softcap != 0) cap_(scores, kKvScores, step_.softcap);
    int32_t first[kTileRows], end[kTileRows];  // seen tokens of the page
    for (int64_t lane = 0; lane < kTileRows; ++lane) {
      const int64_t token = token_of(block, panel * kTileRows + lane), from = page * kKvPageTokens;
      first[lane] = static_cast<int32_t>(std::clamp<int64_t>(store_.first_seen(token + 1) - from, 0, kKvPageTokens));
      end[lane] = static_cast<int32_t>(std::clamp<int64_t>(token + 1 - from, 0, kKvPageTokens));
    }
    float* largest = memory.largest.data() + panel * kTileRows;
    for (int32_t i = 0; i < kKvPageTokens; ++i, scores += kTileRows) {
      for (int64_t lane = 0; lane < kTileRows; ++lane) {
        const float seen = i >= first[lane] && i < end[lane] ? scores[lane] : kHidden;
        scores[lane] = seen;
        largest[lane] = seen > largest[lane] ? seen : largest[lane];
      }
    }
  }
}

// Weights of pages of one segment, and their sums.
void BfpPrompt::softmax(const PromptBlock& block, int64_t first, int64_t end, Memory& memory) const {
  std::fill(memory.segment_sums.begin(), memory.segment_sums.end(), 0.0f);
  for (int64_t panel = 0; panel < block.row_panels; ++panel) {
    const float* scores = memory.scores + (panel * block.pages() + first - block.first_page) * kKvScores;
    uint16_t* weights = memory.weights + panel * kKvSegmentPages * kKvTileWords;
    for (int64_t page = first; page < end; ++page, scores += kKvScores, weights += kKvTileWords) {
      softmax_(scores, memory.largest.data() + panel * kTileRows, weights,
               memory.segment_sums.data() + panel * kTileRows);
    }
  }
  for (size_t i = 0; i < memory.weight_sums.size(); ++i) memory.weight_sums[i] += memory.segment_sums[i];
}

// Weights × values of pages of one segment; but for those of the last page, which come when outputs are stored.
void BfpPrompt::mix(const PromptBlock& block, int64_t first, int64_t end, Memory& memory) const {
  const int64_t stride = kKvSegmentPages * kKvTileWords;
  std::fill_n(memory.partials, block.row_panels * kTileRows * channels_, 0.0f);
  KvPromptPage pages[kKvTilePages];
  int64_t count = 0;
  const auto flush = [&](int64_t apart) {
    if (count) mix_({pages, count, channels_, block.row_panels, apart, memory.partials}, memory.scratch);
    count = 0;
  };
  for (int64_t page = first; page < std::min(end, block.last_page); ++page) {
    const Version version = this->version(block, page);
    const bool is_sparse = store_.is_sparse(block.sequence, page), changes = version == Version::changing;
    if (count == kKvTilePages || is_sparse || changes) flush(stride);
    if (changes) {
      split_weights(block, page, first, memory);
      pages[count++] = {units(block, page, Version::wide, 1), memory.split, false};
      pages[count++] = {units(block, page, Version::narrow, 1), memory.split + kKvTileWords, true};
      flush(2 * kKvTileWords);
    } else {
      pages[count++] = {units(block, page, version, 1), memory.weights + (page - first) * kKvTileWords, false};
      if (is_sparse) flush(stride);
    }
  }
  flush(stride);
  if (end > block.last_page) mix_last_page(block, first, memory);
}

// Weights of a page whose tokens are wide for some queries and narrow for others: those of wide ones, and the rest.
void BfpPrompt::split_weights(const PromptBlock& block, int64_t page, int64_t first, Memory& memory) const {
  for (int64_t row = 0; row < block.row_panels * kTileRows; ++row) {
    const int64_t panel = row / kTileRows, lane = row % kTileRows;
    const uint16_t* from = memory.weights + (panel * kKvSegmentPages + page - first) * kKvTileWords + 2 * lane;
    uint16_t *wide = memory.split + panel * 2 * kKvTileWords + 2 * lane, *narrow = wide + kKvTileWords;
    const int64_t count = narrow_before(token_of(block, row)) - page * kKvPageTokens;
    for (int64_t i = 0; i < kKvPageTokens; ++i) {
      const int64_t at = i / 2 * 2 * kTileRows + i % 2;
      wide[at] = i < count ? 0 : from[at];
      narrow[at] = i < count ? from[at] : 0;
    }
  }
}

// The last page's weights × its values as they are when each token comes.
void BfpPrompt::mix_last_page(const PromptBlock& block, int64_t first, Memory& memory) const {
  const int64_t from = block.last_page * kKvPageTokens, page = block.last_page - first;
  for (int64_t row = 0; row < block.rows; ++row) {
    const uint16_t* weights =
        memory.weights + (row / kTileRows * kKvSegmentPages + page) * kKvTileWords + 2 * (row % kTileRows);
    for (int64_t i = 0; i < kKvPageTokens; ++i) {
      const uint32_t bits = weights[i / 2 * 2 * kTileRows + i % 2];
      memory.open_weights[row * kKvPageTokens + i] = std::bit_cast<float>(bits << 16);
    }
  }
  const KvOpenValues open =
      slab_.open_values(block.head, block.last_page, block.end() - from, store_.config().initial - from, kKvPageTokens);
  mix_open_(
      {open, channels_, block.first - from, token_rows(), 1 - store_.config().local, memory.open_weights, memory.open});
}

// Outputs [query heads, tokens, channels], segment after segment, over the sums of the weights.
void BfpPrompt::store_outputs(const PromptBlock& block, const Memory& memory) const {
  const int64_t in_step = block.first - store_.length(block.sequence), rows = token_rows();
  const bool several = segment_of(block.first_page) < segment_of(block.last_page);
  float sums[kTileRows], partial[kTileRows * kKvLanes], total[kTileRows * kKvLanes] = {};
  for (int64_t panel = 0; panel < block.row_panels; ++panel) {
    const int64_t first = panel * kTileRows, count = std::min<int64_t>(block.rows - first, kTileRows);
    for (int64_t i = 0; i < count; ++i) {
      sums[i] = memory.weight_sums[size(first + i)];
      if (!step_.sinks) continue;
      const float sink = step_.sinks[block.kv_head * rows + (first + i) % rows];
      sums[i] += exp_of(sink - memory.largest[size(first + i)]);
    }
    for (int64_t at = 0; at < channels_; at += kKvLanes) {
      const int64_t tile = (at / kKvLanes * block.row_panels + panel) * kTileRows * kKvLanes;
      transpose(memory.partials + tile, partial);
      if (several) transpose(memory.totals + tile, total);
      for (int64_t i = 0; i < count; ++i) {
        const int64_t row = first + i, token = in_step + row / rows;
        const float *open = memory.open + row * channels_ + at, *mine = partial + i * kKvLanes;
        float* to = step_.out + ((block.head * rows + row % rows) * step_.count + token) * channels_ + at;
        for (int lane = 0; lane < kKvLanes; ++lane) {
          to[lane] = (total[i * kKvLanes + lane] + (mine[lane] + open[lane])) / sums[i];
        }
      }
    }
  }
}

}  // namespace tilepress
