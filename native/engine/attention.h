// Attention of a step's queries to the tokens of their sequences, in pages.
#pragma once

#include <vector>

#include "dispatch/memory.h"
#include "engine/pages.h"

namespace tilepress {

// New tokens of one sequence: rows of the step from `row` on, which are its tokens from `start` on.
struct Sequence {
  int64_t row, count, start;
  std::span<const int64_t> pages;

  int64_t end() const { return start + count; }
};

struct AttentionHeads {
  int64_t heads, kv_heads, head_dim;
  float scaling;
  int64_t window;      // tokens that one sees, itself included; 0: all before it
  float softcap;       // 0: none
  const float* sinks;  // [heads], one more score each, of no value; null: none

  int64_t shared() const { return heads / kv_heads; }
};

// Memory that is used again from layer to layer.
class PagedAttention {
 public:
  // out [rows, heads * head_dim] of queries of the same shape. Tokens of the sequences are in the pages. A group is
  // whole pages.
  void attend(const PagePool& pool, int64_t layer, const AttentionHeads& heads, std::span<const Sequence> sequences,
              const float* queries, float* out, int threads);

 private:
  // Some rows of a sequence and one KV head, over some groups of pages. `state`: where its output is put together with
  // those of other groups; -1: it has all of them.
  struct Task {
    const Sequence* sequence;
    int64_t head, row, rows;
    int64_t group, groups, state;
  };
  class Worker;
  struct Scratch {
    LineVector<float> floats;
    std::vector<SeenTokens> seen;
  };

  void plan(const AttentionHeads& heads, std::span<const Sequence> sequences);
  void divide(int64_t state_size, int threads);

  std::vector<Task> tasks_, whole_;
  std::vector<Scratch> scratch_;  // of each worker
  LineVector<float> states_;      // outputs of groups, [tile_queries, head_dim + 2] each
};

}  // namespace tilepress
