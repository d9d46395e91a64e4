// A KV store of bf16 or fp16 halves without the smallest ones. kernels/attention_reference.py specifies what it
// computes, tilepress/kv_sparse.h its byte layout.
//
// The last page of a sequence has all values while it is not full: it is open. When its last token has been attended
// to, it is pruned token by token and closed: stored as the masks of all heads, the start of each head's values, and
// the values. Closed pages are all of one size, since each keeps the same number of values.
#pragma once

#include "dispatch/kv_store.h"
#include "tilepress/kv_sparse.h"

namespace tilepress {

static_assert(kSparseTokens == kKvPageTokens);

struct SparseKvConfig : KvSizes {
  FloatType type;  // bf16 or f16
};

class SparseKvStore : public KvStore {
 public:
  // Throws std::invalid_argument for an impossible config, or one that needs more than `most` bytes without any token.
  explicit SparseKvStore(const SparseKvConfig& config, int64_t most = kAnyBytes);

  static std::unique_ptr<SparseKvStore> load(const SparseKvConfig& config, const std::vector<int64_t>& lengths,
                                             const KvArrays& arrays);

  // Keys (part 0) or values (part 1) of a head's page; `open`: of the open page.
  SparseUnits units(int64_t sequence, int64_t head, int64_t page, int part, bool open) const;

 private:
  // A closed page.
  struct Page {
    uint32_t *masks, *starts;  // [heads, 2, channels], [heads, 2]
    uint16_t* values;
  };

  // A chunk is closed pages [batch, pages].
  int64_t chunk_bytes(int64_t pages) const override { return sizes_.batch * pages * page_bytes() + kSparseSlack; }
  int64_t pages_of(int64_t tokens) const override { return tokens / kSparseTokens; }
  std::vector<std::pair<std::string, int64_t>> array_sizes() const override;
  void copy_array(const std::string& name, uint8_t* bytes, bool save) override;
  int64_t memory_bytes() const override;
  int64_t settled_pages(int64_t length) const override { return length / kSparseTokens; }
  std::unique_ptr<KvStore> copy_of(const std::vector<int64_t>& sequences, bool in_blocks) const override;
  std::unique_ptr<KvStore> twin() const override;
  void run(const KvStep& step, int threads) override;
  void shorten(int64_t sequence, int64_t length) override;

  // Values of a page's keys, or values, in the open page; and at most in a closed one.
  int64_t open_size() const { return sizes_.token_values() * kSparseTokens; }
  int64_t closed_size(int part) const { return open_size() - kSparseTokens * sizes_.token_drop(part); }
  int64_t mask_count() const { return 2 * sizes_.token_values(); }
  int64_t page_bytes() const;
  Page closed_page(int64_t sequence, int64_t page) const;
  uint16_t* open_page(int64_t sequence, int64_t head, int part) const;
  uint16_t* open_slot(int64_t sequence, int64_t head, int part, int64_t slot) const;

  void append(int64_t sequence, int64_t head, int64_t token, const float* key, const float* value);
  void close(int64_t sequence, int64_t page, int part);
  void prune(int64_t sequence, int part, int64_t slot);
  void reopen(int64_t sequence, int64_t page);
  void set_starts(int64_t sequence, int64_t page);
  void copy_sequence(int64_t to, const SparseKvStore& other, int64_t from);

  friend class SparseAttention;

  FloatType type_;
  KvMemory open_;                            // open pages [batch, 2, heads, 32 * channels], halves
  std::vector<uint32_t> full_masks_;         // masks of an open page, all bits set
  std::vector<int64_t> channel_offsets_[2];  // of a slot's keys and values, from open_slot
};

}  // namespace tilepress
