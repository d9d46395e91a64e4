// Queries × keys of a wave.
#pragma once

#include <vector>

#include "dispatch/kv_bfp_attention_plan.h"
#include "dispatch/kv_queries.h"
#include "dispatch/registry.h"
#include "tilepress/elementwise.h"

namespace tilepress {

class BfpAttentionScore {
 public:
  BfpAttentionScore(BfpKvStore& store, const BfpAttentionPlan& plan) : store_(store), plan_(plan) {}

  // Rounds the queries of all tokens and row panels. A wave of one token needs none of it: whoever needs its queries
  // rounds them then, which takes less time than a barrier.
  void round_queries();

  // Appends the wave's keys of a head; after each key, its token's queries × the mutable pages.
  void append_keys(int64_t head);

  // A job's queries × the immutable pages.
  void score(int64_t job);

 private:
  void round_panel(int64_t panel);
  QueryRows query_rows(const WaveToken& first, int64_t tokens) const;
  KvQueries queries(const WaveToken& token);
  void score_pages(const WaveToken& token, const SegmentSpan& span, const KvQueries& queries);
  void score_tiles(const AttentionJob& job, const SegmentSpan& span);
  void cap(const SegmentSpan& span, int64_t rows, float* scores) const;
  void set_max(const WaveToken& token, const SegmentSpan& span, float* max) const;

  Queries& rounded(const WaveToken& token) {
    return queries_[static_cast<size_t>(token.head * plan_.tokens + token.index - plan_.first)];
  }

  KernelOf<ops::score_f32_bfp_bfp> const score_ = choose<ops::score_f32_bfp_bfp>();
  KernelOf<ops::score_f32_bf16_bfp> const score_tiles_ = choose<ops::score_f32_bf16_bfp>();
  KernelOf<ops::max_f32> const max_ = choose<ops::max_f32>();
  KernelOf<ops::softcap_f32> const cap_ = choose<ops::softcap_f32>();
  BfpKvStore& store_;
  const BfpAttentionPlan& plan_;
  std::vector<Queries> queries_, panel_queries_;  // [heads, tokens], [heads, row panels]
  std::vector<QueryTiles> panel_tiles_;           // [heads, row panels], in place of panel_queries_
};

}  // namespace tilepress
