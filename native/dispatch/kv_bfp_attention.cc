// Attention over a BFP store. Per wave of tokens: (1) round queries; (2) append keys and score mutable pages, head by
// head, while other threads score immutable pages; (3) softmax weights, immutable pages × values; (4) append values,
// mutable pages × values, reduce.
//
// Mutable pages change with every token, so each token sees them as they are when it comes. Immutable pages, nearly all
// of a long context, are the same for all tokens of a wave, and are multiplied in any order.
#include "dispatch/kv_bfp_attention_mix.h"
#include "dispatch/kv_bfp_attention_plan.h"
#include "dispatch/kv_bfp_attention_score.h"
#include "dispatch/kv_bfp_prompt.h"
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

// The step's first `count` tokens.
void attend_in_waves(BfpKvStore& store, const KvStep& step, int64_t count, int threads) {
  BfpAttentionPlan plan(store, step, threads);
  BfpAttentionScore score(store, plan);
  BfpAttentionMix mix(store, plan);
  for (int64_t first = 0; first < count; first += plan.tokens) {
    plan.begin_wave(first, count);
    score.round_queries();
    score_wave(plan, score);
    parallel_for(plan.job_count(), threads, [&](int, int64_t job) { mix.mix(job); });
    parallel_for(plan.total_heads * plan.channel_parts, threads, [&](int, int64_t part) { mix.append_values(part); });
    plan.end_wave();
  }
}

// The step's tokens from `first` on, as a prompt.
void attend_at_once(const BfpKvStore& store, const KvStep& step, int64_t first, int threads) {
  for (const int64_t most = BfpSlab::most_tokens(store); first < step.count; first += most) {
    BfpSlab slab(store, step, first, std::min(most, step.count - first));
    const int64_t heads = store.sizes().batch * store.sizes().heads, pages = heads * slab.pages();
    const auto in_pages = [&](const auto& work) {
      parallel_for(pages, threads, [&](int, int64_t i) {
        work(i % heads, slab.first_page(i % heads / store.sizes().heads) + i / heads);
      });
    };
    in_pages([&](int64_t head, int64_t page) { slab.fill(head, page); });
    const BfpPrompt prompt(slab);
    parallel_for(prompt.block_count(), threads, [&](int, int64_t block) { prompt.attend(block); });
    in_pages([&](int64_t head, int64_t page) { slab.commit(head, page); });
  }
}

// Tokens before those that are attended to at once: all, or until offsets of keys are final.
int64_t tokens_in_waves(const BfpKvStore& store, const KvStep& step) {
  int64_t tokens = 0;
  for (int64_t i = 0; i < store.sizes().batch; ++i) tokens = std::max(tokens, store.until_smooth(i));
  tokens = std::min(tokens, step.count);
  return BfpPrompt::serves(store, step, step.count - tokens) ? tokens : step.count;
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
  const int64_t in_waves = tokens_in_waves(*this, changed);
  attend_in_waves(*this, changed, in_waves, threads);
  attend_at_once(*this, changed, in_waves, threads);
  settle(step);
}

}  // namespace tilepress
