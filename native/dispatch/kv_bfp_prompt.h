// Attention of many tokens of a prompt at once, on a matrix unit, over a BFP store.
//
// A block is some tokens of a page, with the query heads that share a KV head: it goes through all of its context,
// alone and in any order with other blocks. Its scores, softmax weights and outputs stay in its thread's caches. They
// are transposed: rows, which are token after token, are lanes. Pages that are the same for all its tokens are
// multiplied as they are; two versions of a page that turns from wide to narrow meanwhile; and the last page, whose
// exponents rise, token by token.
#pragma once

#include "dispatch/kv_bfp_slab.h"
#include "dispatch/kv_queries.h"
#include "dispatch/registry.h"
#include "tilepress/elementwise.h"

namespace tilepress {

// Tokens from `first` on, counted in their sequence.
struct PromptBlock {
  int64_t head, sequence, kv_head;  // head: over all sequences
  int64_t first, tokens, rows, row_panels;
  int64_t first_page, last_page;  // that some token sees; last_page has the block's tokens

  int64_t end() const { return first + tokens; }
  int64_t pages() const { return last_page - first_page + 1; }
};

class BfpPrompt {
 public:
  // Whether so many tokens of the step are attended to in this way.
  static bool serves(const BfpKvStore& store, const KvStep& step, int64_t tokens);

  explicit BfpPrompt(const BfpSlab& slab);

  // Of all sequences and heads; some may have no tokens. Costly ones first and last, in turns.
  int64_t block_count() const { return total_heads_ * blocks_; }
  void attend(int64_t block) const;

 private:
  struct Memory;
  enum class Version { stored, wide, narrow, changing };

  PromptBlock block(int64_t index) const;
  Memory& own_memory(const PromptBlock& block) const;
  int64_t token_rows() const { return step_.query_heads / store_.sizes().heads; }
  // The token of a row; of rows that are missing, the last.
  int64_t token_of(const PromptBlock& block, int64_t row) const {
    return block.first + std::min(row, block.rows - 1) / token_rows();
  }
  int64_t narrow_before(int64_t token) const { return token + 1 - store_.truncated_later(); }
  bool is_seen_whole(const PromptBlock& block, int64_t page) const;

  Version version(const PromptBlock& block, int64_t page) const;
  ConstKvUnits units(const PromptBlock& block, int64_t page, Version version, int part) const;

  void set_queries(const PromptBlock& block, Memory& memory) const;
  void score(const PromptBlock& block, Memory& memory) const;
  void score_pages(const PromptBlock& block, const ConstKvUnits* keys, int64_t first, int64_t count,
                   Memory& memory) const;
  void score_both(const PromptBlock& block, int64_t page, Memory& memory) const;
  void hide_unseen(const PromptBlock& block, int64_t page, Memory& memory) const;
  void softmax(const PromptBlock& block, int64_t first, int64_t end, Memory& memory) const;
  void mix(const PromptBlock& block, int64_t first, int64_t end, Memory& memory) const;
  void split_weights(const PromptBlock& block, int64_t page, int64_t first, Memory& memory) const;
  void mix_last_page(const PromptBlock& block, int64_t first, Memory& memory) const;
  void store_outputs(const PromptBlock& block, const Memory& memory) const;

  KernelOf<ops::score_f32_bfp_bf16> const score_ = choose<ops::score_f32_bfp_bf16>();
  KernelOf<ops::softmax_bf16_f32> const softmax_ = choose<ops::softmax_bf16_f32>();
  KernelOf<ops::mix_f32_bfp_bf16> const mix_ = choose<ops::mix_f32_bfp_bf16>();
  KernelOf<ops::mix_f32_f32_f16> const mix_open_ = choose<ops::mix_f32_f32_f16>();
  KernelOf<ops::softcap_f32> const cap_ = choose<ops::softcap_f32>();
  const BfpSlab& slab_;
  const BfpKvStore& store_;
  const KvStep& step_;
  int64_t total_heads_, channels_, block_tokens_, blocks_;
};

}  // namespace tilepress
