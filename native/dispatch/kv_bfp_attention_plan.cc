#include "dispatch/kv_bfp_attention_plan.h"

#include <functional>
#include <limits>

#include "dispatch/checks.h"
#include "dispatch/registry.h"

namespace tilepress {
namespace {

constexpr int64_t kWaveTokens = 32;
// Floats of scores and partial outputs per wave: in all, and for each thread.
constexpr int64_t kLeastFloats = 1 << 21, kMostFloats = 1 << 23, kThreadFloats = 1 << 19;
constexpr int64_t kTilePanelRows = 32;  // rows per call of a tile kernel
constexpr int64_t kAllPages = kMostTokens;

// Whether the tile kernel is for the same or a higher instruction set than the other.
bool prefers_tiles() { return find<ops::score_f32_bf16_bfp>()->isa >= find<ops::score_f32_bfp_bfp>()->isa; }

std::vector<int64_t> lengths_of(const BfpKvStore& store) {
  std::vector<int64_t> lengths;
  for (int64_t i = 0; i < store.sizes().batch; ++i) lengths.push_back(store.length(i));
  return lengths;
}

}  // namespace

BfpAttentionPlan::BfpAttentionPlan(const BfpKvStore& store, const KvStep& step, int threads)
    : store(store),
      step(step),
      threads(threads),
      heads(store.sizes().heads),
      total_heads(store.sizes().batch * heads),
      channels(store.sizes().channels),
      rows(step.queries ? step.query_heads / heads : 0),
      channel_parts(std::clamp<int64_t>(threads / total_heads, 1, kv_units(channels))),
      lengths_(lengths_of(store)) {}

// As many tokens before `end` as there is memory for, at least one.
void BfpAttentionPlan::begin_wave(int64_t first_token, int64_t end) {
  first = first_token;
  tokens = std::min(end - first, kWaveTokens);
  const auto [shortest, longest] = std::minmax_element(lengths_.begin(), lengths_.end());
  first_segment = store.first_seen(*shortest + 1) / kKvSegment;
  segments = segments_of(*longest + tokens) - first_segment;
  if (!rows) return;
  const int64_t token_rows = total_heads * segments * rows;
  const int64_t room = std::clamp(kThreadFloats * threads, kLeastFloats, kMostFloats);
  tokens = std::min(tokens, std::max<int64_t>(room / (token_rows * (kKvSegment + channels)), 1));
  tiles = prefers_tiles() && (step.stored ? 1 : tokens) * rows >= kLeastTileRows;
  const int64_t together = (tiles ? kTilePanelRows : kKvSet) / rows;
  panel_tokens = step.stored ? 1 : std::min(std::max<int64_t>(together, 1), tokens);
  panels = (tokens + panel_tokens - 1) / panel_tokens;
  allocate(panels * panel_tokens * token_rows);
}

void BfpAttentionPlan::end_wave() {
  for (size_t i = 0; i < lengths_.size(); ++i) {
    lengths_[i] = token(static_cast<int64_t>(i) * heads, tokens - 1).length;
  }
}

// The calling thread keeps the memory for its next call: touching new memory costs more than computing scores.
void BfpAttentionPlan::allocate(int64_t all_rows) {
  static thread_local KvMemory buffer;
  const int64_t floats = kKvSegment + channels + 3, pages = 2 * kKvSegmentPages;
  const int64_t bytes = all_rows * ((floats + pages) * int64_t{sizeof(float)} + kKvSegment);
  if (buffer.size() < bytes) buffer = KvMemory(bytes);
  memory.scores = buffer.as<float>();
  memory.partials = memory.scores + all_rows * kKvSegment;
  memory.immutable_max = memory.partials + all_rows * channels;
  memory.mutable_max = memory.immutable_max + all_rows;
  memory.weight_sums = memory.mutable_max + all_rows;
  memory.weights.units = memory.weight_sums + all_rows;
  memory.weights.sums = reinterpret_cast<int32_t*>(memory.weights.units + all_rows * kKvSegmentPages);
  memory.weights.values = reinterpret_cast<uint8_t*>(memory.weights.sums + all_rows * kKvSegmentPages);
  std::fill_n(memory.mutable_max, all_rows, -std::numeric_limits<float>::infinity());
}

WaveToken BfpAttentionPlan::token(int64_t head, int64_t index) const {
  const int64_t sequence = head / heads, kv_head = head - sequence * heads, in_step = first + index;
  if (!step.stored) return {head, sequence, kv_head, in_step, lengths_[size(sequence)] + index + 1, true};
  const uint8_t* stored = step.stored + sequence * step.count;
  const auto count = std::count_if(stored + first, stored + in_step + 1, std::identity());
  return {head, sequence, kv_head, in_step, lengths_[size(sequence)] + count, stored[in_step] != 0};
}

AttentionJob BfpAttentionPlan::job(int64_t index) const {
  const int64_t panel = index / segments, begin = panel % panels * panel_tokens;
  return {token(panel / panels, begin), panel, std::min(panel_tokens, tokens - begin),
          first_segment + index % segments};
}

SegmentSpan BfpAttentionPlan::span(const WaveToken& token, int64_t segment, int64_t first_page,
                                   int64_t last_page) const {
  const int64_t from = std::max({store.first_seen(token.length), segment * kKvSegment, first_page * kKvPageTokens});
  const int64_t to = std::min({token.length, (segment + 1) * kKvSegment, last_page * kKvPageTokens});
  if (from >= to) return {segment, 0, 0, from, from};
  return {segment, from / kKvPageTokens, (to + kKvPageTokens - 1) / kKvPageTokens, from, to};
}

SegmentSpan BfpAttentionPlan::immutable_span(const WaveToken& token, int64_t segment) const {
  return span(token, segment, 0, settled_pages(token.sequence));
}

SegmentSpan BfpAttentionPlan::mutable_span(const WaveToken& token, int64_t segment) const {
  return span(token, segment, settled_pages(token.sequence), kAllPages);
}

SoftmaxWeights BfpAttentionPlan::weights(int64_t item) const {
  const int64_t row = item * rows, page = row * kKvSegmentPages;
  return {memory.weights.values + row * kKvSegment, memory.weights.sums + page, memory.weights.units + page};
}

uint8_t* BfpAttentionPlan::tile_scratch(int64_t of_rows) const {
  static thread_local KvMemory scratch;
  const int64_t bytes = kv_tile_scratch(channels, of_rows);
  if (scratch.size() < bytes) scratch = KvMemory(bytes);
  return scratch.data();
}

}  // namespace tilepress
