// How a step of attention over a BFP store is divided, and the memory it works in.
//
//   wave       up to 32 tokens of the step, fewer where their scores need too much memory
//   row        one token's query of one of the query heads that share a KV head
//   row panel  tokens of a wave whose rows are multiplied together: 4 rows or, on a matrix unit, 32
//   segment    1024 tokens of context, 32 pages
//   item       one token × one KV head × one segment: `rows` rows of scores
//   job        a row panel × a segment: neighbouring items
//
// Heads are counted over all sequences: head = sequence * heads + KV head.
#pragma once

#include <vector>

#include "dispatch/kv_bfp_store.h"

namespace tilepress {

// A token of the wave, for one head.
struct WaveToken {
  int64_t head, sequence, kv_head;
  int64_t index;   // in the step
  int64_t length;  // tokens of its sequence up to it
  bool stored;     // false: padding

  WaveToken after(int64_t tokens) const { return {head, sequence, kv_head, index + tokens, length + tokens, stored}; }
};

// Tokens of a segment that a query sees, from `first` to `last`, and the pages they are in.
struct SegmentSpan {
  int64_t segment, first_page, last_page, first, last;
};

// Tokens of a row panel (several only if none is padding), and a segment of their context.
struct AttentionJob {
  WaveToken first;
  int64_t panel, tokens, segment;
};

// By row, a segment apart: softmax weights; of each page their sum and what 1 stands for.
struct SoftmaxWeights {
  uint8_t* values;
  int32_t* sums;
  float* units;
};

// By item and row.
struct WaveMemory {
  float* scores;                       // [kKvSegment]
  float* partials;                     // weights × values; of an item [channels / 16, rows, 16]
  float *immutable_max, *mutable_max;  // largest scores of immutable and of mutable pages
  float* weight_sums;
  SoftmaxWeights weights;  // of mutable pages
};

class BfpAttentionPlan {
 public:
  BfpAttentionPlan(const BfpKvStore& store, const KvStep& step, int threads);

  void begin_wave(int64_t first, int64_t end);
  void end_wave();

  int64_t panel_count() const { return rows ? total_heads * panels : 0; }
  int64_t job_count() const { return panel_count() * segments; }
  AttentionJob job(int64_t index) const;
  WaveToken token(int64_t head, int64_t index) const;  // index: in the wave

  // Of the context of a token, or of a job's first token, which sees no less of these pages than the others.
  SegmentSpan immutable_span(const WaveToken& token, int64_t segment) const;
  SegmentSpan mutable_span(const WaveToken& token, int64_t segment) const;
  // Calls work(span) for each segment with mutable pages.
  template <class Work>
  void for_mutable_spans(const WaveToken& token, const Work& work) const {
    const int64_t begin = std::max(settled_pages(token.sequence) / kKvSegmentPages, first_segment);
    for (int64_t segment = begin; segment < end_segment(token); ++segment) work(mutable_span(token, segment));
  }

  int64_t end_segment(const WaveToken& token) const { return segments_of(token.length); }
  int64_t item(const WaveToken& token, int64_t segment) const {
    const int64_t index = token.index - first, panel = token.head * panels + index / panel_tokens;
    return (panel * segments + segment - first_segment) * panel_tokens + index % panel_tokens;
  }
  // Scores of an item's first row, from the token `position` of its sequence on.
  float* scores(int64_t item, int64_t segment, int64_t position) const {
    return memory.scores + item * rows * kKvSegment + position - segment * kKvSegment;
  }
  float* partials(int64_t item) const { return memory.partials + item * rows * channels; }
  SoftmaxWeights weights(int64_t item) const;

  // Offsets of a token in the step's keys and values, and in its queries and outputs.
  int64_t input(const WaveToken& token) const { return (token.head * step.count + token.index) * channels; }
  int64_t output(const WaveToken& token) const { return (token.head * rows * step.count + token.index) * channels; }

  KvUnits page(const WaveToken& token, int64_t page, int part) const {
    return store.units(token.sequence, token.kv_head, page, token.length, part);
  }
  // Calls work(pages, first page, count) for runs of pages as tile kernels take them, from a unit of each page on. A
  // sparse page is a run of its own: the next one overwrites it.
  template <class Work>
  void for_page_runs(const WaveToken& token, const SegmentSpan& span, int part, int64_t unit, const Work& work) const {
    ConstKvUnits pages[kKvTilePages];
    for (int64_t begin = span.first_page, count; begin < span.last_page; begin += count) {
      for (count = 0; count < std::min(kKvTilePages, span.last_page - begin);) {
        pages[count] = page(token, begin + count, part).unit(unit);
        if (store.is_sparse(token.sequence, begin + count++)) break;
      }
      work(pages, begin, count);
    }
  }
  uint8_t* tile_scratch(int64_t of_rows) const;  // the thread's own

  // A matrix unit is worth it from this number of rows on.
  static constexpr int64_t kLeastTileRows = 9;

  const BfpKvStore& store;
  const KvStep& step;
  const int threads;
  const int64_t heads, total_heads, channels;
  const int64_t rows;           // query heads per KV head; 0: tokens are only stored
  const int64_t channel_parts;  // ranges of a head's channels whose values are appended in parallel

  // Of the wave.
  int64_t first = 0, tokens = 1;            // in the step
  int64_t first_segment = 0, segments = 0;  // that some token sees
  int64_t panel_tokens = 1, panels = 1;     // tokens of a row panel, and row panels of a head
  bool tiles = false;                       // row panels go to a matrix unit
  WaveMemory memory = {};

 private:
  static int64_t segments_of(int64_t tokens) { return (tokens + kKvSegment - 1) / kKvSegment; }

  int64_t settled_pages(int64_t sequence) const { return store.settled_pages(lengths_[static_cast<size_t>(sequence)]); }
  SegmentSpan span(const WaveToken& token, int64_t segment, int64_t first_page, int64_t last_page) const;
  void allocate(int64_t all_rows);

  std::vector<int64_t> lengths_;  // of sequences, before the wave
};

}  // namespace tilepress
