// Keys and values of all layers' tokens, in pages of the same number of tokens. Sequences refer to pages by their
// indices; a page is the same for all layers.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "tilepress/attention.h"

namespace tilepress {

// A context is divided into groups of this many tokens, from its first token on. Groups' outputs are put together from
// the first to the last, whichever threads computed them: so a token's output depends on its context alone.
inline constexpr int64_t kGroupTokens = 128;
inline constexpr int64_t kMostPages = kGroupTokens / kPageStep;  // of a group

// Of one layer.
struct PageShape {
  int64_t kv_heads, head_dim;
};

// Queries [count, head_dim], scaled, of one layer's KV head, and the pages of a group.
struct GroupQueries {
  int64_t layer, head;
  std::span<const int64_t> pages;
  const float* queries;
  const SeenTokens* seen;  // [count]
  int64_t count;
  float softcap;
};

// How keys and values are stored is known here alone. The caller checks all indices, and sees to it that no thread
// writes to a page that another one uses.
class PagePool {
 public:
  // page_tokens: a multiple of kPageStep.
  PagePool(std::span<const PageShape> layers, int64_t pages, int64_t page_tokens)
      : layers_(layers.begin(), layers.end()), pages_(pages), page_tokens_(page_tokens) {}
  virtual ~PagePool() = default;
  PagePool(const PagePool&) = delete;

  int64_t pages() const { return pages_; }
  int64_t page_tokens() const { return page_tokens_; }
  const std::vector<PageShape>& layers() const { return layers_; }

  // Of one page, all layers.
  virtual int64_t page_bytes() const = 0;
  // A token's keys and values [kv_heads, head_dim], into a place of a page.
  virtual void write(int64_t layer, int64_t page, int64_t place, const float* keys, const float* values) = 0;
  // Keys and values of a page: [kv_heads, 2, page_tokens, head_dim].
  virtual void read(int64_t layer, int64_t page, float* to) const = 0;
  // As attend_f32_f32_fp_pages; `weights` is scratch for count * pages * page_tokens floats.
  virtual void attend(const GroupQueries& group, float* weights, float* out) const = 0;
  virtual void copy(int64_t source, int64_t target) = 0;

 private:
  std::vector<PageShape> layers_;
  int64_t pages_, page_tokens_;
};

// Pages of floats. A layer's page: [kv_heads][keys, values], keys as [head_dim, page_tokens], so that the scores of
// neighbouring tokens are computed in the lanes of a vector, and values as [page_tokens, head_dim].
std::unique_ptr<PagePool> float_pages(FloatType type, std::span<const PageShape> layers, int64_t pages,
                                      int64_t page_tokens);

}  // namespace tilepress
