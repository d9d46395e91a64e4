#include "dispatch/kv_bfp_attention_score.h"

#include "dispatch/checks.h"
#include "dispatch/parallel.h"

namespace tilepress {

void BfpAttentionScore::round_queries() {
  const bool several = plan_.rows && plan_.tokens > 1;
  if (plan_.rows) {
    queries_.resize(size(several ? plan_.total_heads * plan_.tokens : 0));
    panel_queries_.resize(size(plan_.panel_tokens > 1 && !plan_.tiles ? plan_.panel_count() : 0));
    panel_tiles_.resize(size(plan_.tiles ? plan_.panel_count() : 0));
  }
  parallel_for(several ? plan_.panel_count() : 0, plan_.threads, [this](int, int64_t panel) { round_panel(panel); });
}

void BfpAttentionScore::round_panel(int64_t panel) {
  const int64_t head = panel / plan_.panels, begin = panel % plan_.panels * plan_.panel_tokens;
  const int64_t tokens = std::min(plan_.panel_tokens, plan_.tokens - begin);
  for (int64_t i = 0; i < tokens; ++i) {
    const WaveToken token = plan_.token(head, begin + i);
    if (token.stored) rounded(token).set(query_rows(token, 1), plan_.channels);
  }
  const WaveToken first = plan_.token(head, begin);
  if (plan_.tiles && first.stored) panel_tiles_[size(panel)].set(query_rows(first, tokens), plan_.channels);
  if (!panel_queries_.empty()) panel_queries_[size(panel)].set(query_rows(first, tokens), plan_.channels);
}

QueryRows BfpAttentionScore::query_rows(const WaveToken& first, int64_t tokens) const {
  const int64_t stride = plan_.step.count * plan_.channels;
  return {plan_.step.queries + plan_.output(first), plan_.rows, stride, tokens, plan_.channels};
}

KvQueries BfpAttentionScore::queries(const WaveToken& token) {
  static thread_local Queries own;
  if (plan_.tokens > 1) return rounded(token).view();
  own.set(query_rows(token, 1), plan_.channels);
  return own.view();
}

void BfpAttentionScore::append_keys(int64_t head) {
  for (int64_t i = 0; i < plan_.tokens; ++i) {
    const WaveToken token = plan_.token(head, i);
    if (!token.stored) continue;
    const float* key = plan_.step.keys + plan_.input(token);
    store_.append_key(token.sequence, token.kv_head, token.length - 1, key);
    if (!plan_.rows) continue;
    const KvQueries rounded = queries(token);
    plan_.for_mutable_spans(token, [&](const SegmentSpan& span) {
      score_pages(token, span, rounded);
      set_max(token, span, plan_.memory.mutable_max);
    });
  }
}

void BfpAttentionScore::score(int64_t index) {
  const AttentionJob job = plan_.job(index);
  if (!job.first.stored) return;
  const SegmentSpan span = plan_.immutable_span(job.first, job.segment);
  if (span.first_page < span.last_page) {
    if (plan_.tiles) {
      score_tiles(job, span);
    } else {
      const bool panel = plan_.panel_tokens > 1;
      score_pages(job.first, span, panel ? panel_queries_[size(job.panel)].view() : queries(job.first));
    }
  }
  for (int64_t i = 0; i < job.tokens; ++i) {
    const WaveToken token = job.first.after(i);
    set_max(token, plan_.immutable_span(token, job.segment), plan_.memory.immutable_max);
  }
}

void BfpAttentionScore::score_pages(const WaveToken& token, const SegmentSpan& span, const KvQueries& queries) {
  float* first = plan_.scores(plan_.item(token, span.segment), span.segment, span.first_page * kKvPageTokens);
  float* scores = first;
  for (int64_t page = span.first_page; page < span.last_page; ++page, scores += kKvPageTokens) {
    score_(plan_.page(token, page, 0), plan_.channels, queries, plan_.step.scaling, scores);
  }
  cap(span, queries.rows, first);
}

void BfpAttentionScore::score_tiles(const AttentionJob& job, const SegmentSpan& span) {
  static thread_local QueryTiles own;
  const bool alone = plan_.tokens == 1;
  if (alone) own.set(query_rows(job.first, 1), plan_.channels);
  const KvQueryTiles queries = (alone ? own : panel_tiles_[size(job.panel)]).view();
  const int64_t item = plan_.item(job.first, span.segment);
  plan_.for_page_runs(job.first, span, 0, 0, [&](const ConstKvUnits* pages, int64_t first, int64_t count) {
    score_tiles_(pages, count, plan_.channels, queries, plan_.step.scaling,
                 plan_.scores(item, span.segment, first * kKvPageTokens), plan_.tile_scratch(queries.rows));
  });
  cap(span, queries.rows, plan_.scores(item, span.segment, span.first_page * kKvPageTokens));
}

// Soft-caps the rows of scores of a span's pages.
void BfpAttentionScore::cap(const SegmentSpan& span, int64_t rows, float* scores) const {
  if (plan_.step.softcap == 0) return;
  const int64_t count = (span.last_page - span.first_page) * kKvPageTokens;
  for (int64_t row = 0; row < rows; ++row) cap_(scores + row * kKvSegment, count, plan_.step.softcap);
}

// The largest score of each of a token's rows.
void BfpAttentionScore::set_max(const WaveToken& token, const SegmentSpan& span, float* max) const {
  const int64_t item = plan_.item(token, span.segment);
  const float* scores = plan_.scores(item, span.segment, span.first);
  for (int64_t row = 0; row < plan_.rows; ++row) {
    max[item * plan_.rows + row] = max_(scores + row * kKvSegment, span.last - span.first);
  }
}

}  // namespace tilepress
