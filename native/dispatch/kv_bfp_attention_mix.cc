#include "dispatch/kv_bfp_attention_mix.h"

#include <limits>

#include "dispatch/checks.h"
#include "simd/math.h"

namespace tilepress {
namespace {

// Tokens of a span's pages outside the span, and those before `first`, get scores whose weights are 0.
void hide_unseen(float* scores, const SegmentSpan& span, int64_t first) {
  constexpr float kHidden = -1e30f;
  const int64_t begin = span.first_page * kKvPageTokens, end = span.last_page * kKvPageTokens;
  std::fill(scores, scores + first - begin, kHidden);
  std::fill(scores + span.last - begin, scores + end - begin, kHidden);
}

// The same bits on every machine: unlike kernels of floats, this file is compiled without contraction.
float exp_of(float x) { return exp(splat<Floats>(x))[0]; }

// The thread's own weights for so many rows.
SoftmaxWeights own_weights(int64_t rows) {
  static thread_local std::vector<uint8_t> values;
  static thread_local std::vector<int32_t> sums;
  static thread_local std::vector<float> units;
  values.resize(size(rows * kKvSegment));
  sums.resize(size(rows * kKvSegmentPages));
  units.resize(sums.size());
  return {values.data(), sums.data(), units.data()};
}

}  // namespace

void BfpAttentionMix::mix(int64_t index) {
  const AttentionJob job = plan_.job(index);
  if (!job.first.stored) return;
  const int64_t item = plan_.item(job.first, job.segment), rows = job.tokens * plan_.rows;
  std::fill_n(plan_.memory.weight_sums + item * plan_.rows, rows, 0.0f);
  std::fill_n(plan_.partials(item), rows * plan_.channels, 0.0f);
  const SoftmaxWeights weights = own_weights(rows);
  softmax(job.first, plan_.immutable_span(job.first, job.segment), job.tokens, weights);
  for (int64_t i = 0; i < job.tokens; ++i) {
    const WaveToken token = job.first.after(i);
    softmax(token, plan_.mutable_span(token, job.segment), 1, plan_.weights(plan_.item(token, job.segment)));
  }
  mix_panel(job, weights);
}

// Weights of `tokens` tokens for a span of the first one's, from its first page on, and their sums.
void BfpAttentionMix::softmax(const WaveToken& first, const SegmentSpan& span, int64_t tokens,
                              const SoftmaxWeights& to) {
  const int64_t item = plan_.item(first, span.segment), pages = span.last_page - span.first_page;
  if (!pages) return;
  float* scores = plan_.scores(item, span.segment, span.first_page * kKvPageTokens);
  float* weight_sums = plan_.memory.weight_sums + item * plan_.rows;
  for (int64_t row = 0; row < tokens * plan_.rows; ++row, scores += kKvSegment) {
    const WaveToken token = first.after(row / plan_.rows);
    const int64_t at = row * kKvSegmentPages;
    hide_unseen(scores, span, std::clamp(store_.first_seen(token.length), span.first, span.last));
    softmax_(scores, pages * kKvPageTokens, max_of(token, row % plan_.rows), to.values + row * kKvSegment, to.sums + at,
             to.units + at);
    for (int64_t i = at; i < at + pages; ++i) weight_sums[row] += static_cast<float>(to.sums[i]) * to.units[i];
  }
}

// The sink of a row's query head, or null.
const float* BfpAttentionMix::sink(const WaveToken& token, int64_t row) const {
  return plan_.step.sinks ? plan_.step.sinks + token.kv_head * plan_.rows + row : nullptr;
}

// Over all segments, immutable and mutable pages, and the sink.
float BfpAttentionMix::max_of(const WaveToken& token, int64_t row) const {
  const float* of_sink = sink(token, row);
  float largest = of_sink ? *of_sink : -std::numeric_limits<float>::infinity();
  for (int64_t s = plan_.first_segment; s < plan_.end_segment(token); ++s) {
    const int64_t at = plan_.item(token, s) * plan_.rows + row;
    largest = std::max({largest, plan_.memory.immutable_max[at], plan_.memory.mutable_max[at]});
  }
  return largest;
}

// Weights of a row panel × immutable pages, to the partial outputs of each token.
void BfpAttentionMix::mix_panel(const AttentionJob& job, const SoftmaxWeights& weights) {
  static thread_local std::vector<float> together;
  const SegmentSpan span = plan_.immutable_span(job.first, job.segment);
  const int64_t channels = plan_.channels, token_lanes = plan_.rows * kKvLanes;
  float* partials = plan_.partials(plan_.item(job.first, job.segment));
  if (job.tokens == 1) return mix_pages(job.first, span, 1, weights, {0, channels}, partials);
  together.assign(size(job.tokens * plan_.rows * channels), 0.0f);
  mix_pages(job.first, span, job.tokens, weights, {0, channels}, together.data());
  // [channels / 16, tokens, rows, 16] to each token's [channels / 16, rows, 16].
  for (int64_t i = 0; i < channels / kKvLanes * job.tokens; ++i) {
    const int64_t lanes = i / job.tokens, token = i % job.tokens;
    std::copy_n(together.data() + i * token_lanes, token_lanes,
                partials + token * plan_.rows * channels + lanes * token_lanes);
  }
}

// Adds weights × values of some channels to partials [channels / 16, tokens, rows, 16].
void BfpAttentionMix::mix_pages(const WaveToken& first, const SegmentSpan& span, int64_t tokens,
                                const SoftmaxWeights& weights, const KvChannels& which, float* partials) {
  const int64_t rows = tokens * plan_.rows;
  partials += which.first * rows;
  const auto weights_from = [&](int64_t page) -> KvWeights {
    const int64_t i = page - span.first_page;
    return {weights.values + i * kKvPageTokens, weights.sums + i, weights.units + i, rows};
  };
  if (plan_.tiles && rows >= BfpAttentionPlan::kLeastTileRows) {
    plan_.for_page_runs(first, span, 1, which.first / kKvLanes,
                        [&](const ConstKvUnits* pages, int64_t page, int64_t count) {
                          mix_tiles_(pages, count, which.count, weights_from(page), partials, plan_.tile_scratch(rows));
                        });
    return;
  }
  for (int64_t page = span.first_page; page < span.last_page; ++page) {
    mix_(which.of(plan_.page(first, page, 1)), which.count, weights_from(page), partials);
  }
}

void BfpAttentionMix::append_values(int64_t part) {
  const int64_t parts = plan_.channel_parts, head = part / parts, index = part % parts;
  const int64_t units = kv_units(plan_.channels), first = index * units / parts, last = (index + 1) * units / parts;
  const KvChannels which = {first * kKvLanes, (last - first) * kKvLanes};
  for (int64_t i = 0; i < plan_.tokens; ++i) {
    const WaveToken token = plan_.token(head, i);
    if (token.stored) {
      const float* value = plan_.step.values + plan_.input(token);
      store_.append_value(token.sequence, token.kv_head, token.length - 1, value, which);
    }
    if (plan_.rows && token.stored) {
      plan_.for_mutable_spans(token, [&](const SegmentSpan& span) {
        const int64_t item = plan_.item(token, span.segment);
        mix_pages(token, span, 1, plan_.weights(item), which, plan_.partials(item));
      });
    }
    if (plan_.rows) reduce(token, which);
  }
}

// Outputs [rows, channels] from the partials [channels / 16, rows, 16] of all segments, in their order.
void BfpAttentionMix::reduce(const WaveToken& token, const KvChannels& which) const {
  const int64_t rows = plan_.rows;
  float* to = plan_.step.out + plan_.output(token) + which.first;
  for (int64_t row = 0; row < rows; ++row, to += plan_.step.count * plan_.channels) {
    std::fill(to, to + which.count, 0.0f);
    if (!token.stored) continue;
    float weight_sum = 0;
    for (int64_t s = plan_.first_segment; s < plan_.end_segment(token); ++s) {
      const int64_t item = plan_.item(token, s);
      const float* partial = plan_.partials(item) + which.first * rows + row * kKvLanes;
      for (int64_t i = 0; i < which.count; i += kKvLanes, partial += rows * kKvLanes) {
        for (int lane = 0; lane < kKvLanes; ++lane) to[i + lane] += partial[lane];
      }
      weight_sum += plan_.memory.weight_sums[item * rows + row];
    }
    if (const float* score = sink(token, row)) weight_sum += exp_of(*score - max_of(token, row));
    for (int64_t i = 0; i < which.count; ++i) to[i] /= weight_sum;
  }
}

}  // namespace tilepress
