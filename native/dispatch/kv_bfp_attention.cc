// Attention over a BFP store. Per wave of tokens: (1) round queries; (2) append keys and score mutable pages, head by
// head, while other threads score immutable pages; (3) softmax weights, immutable pages × values; (4) append values,
// mutable pages × values, reduce.
//
// Mutable pages change with every token, so each token sees them as they are when it comes. Immutable pages, nearly all
// of a long context, are the same for all tokens of a wave, and are multiplied in any order.
#include "dispatch/kv_bfp_attention_mix.h"
#include "dispatch/kv_bfp_attention_plan.h"
#include "dispatch/kv_bfp_attention_score.h"
#include "dispatch/kv_pruning.h"
#include "dispatch/kv_rotation.h"
#include "dispatch/parallel.h"

namespace tilepress {
namespace {

// (2). Heads take longest: they are spread evenly among the jobs, as threads start with neighbours.
void score_wave(const BfpAttentionPlan& plan, BfpAttentionScore& score) {
  const int64_t heads = plan.total_heads, all = heads + plan.job_count();
  const auto heads_before = [&](int64_t index) { return (index * heads + all - 1) / all; };
  parallel_for(all, plan.threads, [&](int, int64_t index) {
    const int64_t before = heads_before(index);
    heads_before(index + 1) > before ? score.append_keys(before) : score.score(index - before);
  });
}

void attend_in_waves(BfpKvStore& store, const KvStep& step, int threads) {
  BfpAttentionPlan plan(store, step, threads);
  BfpAttentionScore score(store, plan);
  BfpAttentionMix mix(store, plan);
  for (int64_t first = 0; first < step.count; first += plan.tokens) {
    plan.begin_wave(first);
    score.round_queries();
    score_wave(plan, score);
    parallel_for(plan.job_count(), threads, [&](int, int64_t job) { mix.mix(job); });
    parallel_for(plan.total_heads * plan.channel_parts, threads, [&](int, int64_t part) { mix.append_values(part); });
    plan.end_wave();
  }
}

}  // namespace

void BfpKvStore::run(const KvStep& step, int threads) {
  KvStep changed = step;
  std::vector<float> keys, values, queries;
  if (config_.rotated) {
    const int64_t rows = sizes_.batch * step.count, channels = sizes_.channels;
    changed.keys = (keys = rotated(step.keys, rows * sizes_.heads, channels, threads)).data();
    queries = rotated(step.queries, step.queries ? rows * step.query_heads : 0, channels, threads);
    if (step.queries) changed.queries = queries.data();
  }
  if (sizes_.key_drop) changed.keys = (keys = without_smallest(sizes_, changed, 0, threads)).data();
  if (sizes_.value_drop) changed.values = (values = without_smallest(sizes_, step, 1, threads)).data();
  attend_in_waves(*this, changed, threads);
  settle(step);
}

}  // namespace tilepress
