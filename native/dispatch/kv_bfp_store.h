// A KV store in block floating point. kernels/attention_reference.py specifies what it computes, tilepress/kv_bfp.h its
// byte layout.
//
// Tokens may have more bits (`high`) at the start and at the end of a sequence: the sink and the window of recent
// tokens. A token that leaves the recent ones is truncated in place. A page is immutable once it is full and all of its
// tokens are truncated. Where keys or values are pruned and there is no window, immutable pages are stored as sparse
// BFP, without zeros.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "dispatch/kv_sparse_bfp.h"
#include "dispatch/kv_store.h"

namespace tilepress {

struct BfpKvConfig : KvSizes {
  int mantissa, high;      // bits of most tokens' magnitudes, and of the first `initial` and the last `local`
  int64_t initial, local;  // tokens
  bool nearest;            // fewer bits than 8 are of the nearest number, not truncated
  int64_t smoothed;        // channels of keys that have an offset
  bool rotated;            // keys and queries are times a Hadamard matrix, before everything else
};

// A range of a head's channels, in multiples of kKvLanes.
struct KvChannels {
  int64_t first, count;

  KvUnits of(const KvUnits& values) const { return values.unit(first / kKvLanes); }
};

class BfpKvStore : public KvStore {
 public:
  // Throws std::invalid_argument for an impossible config, or one that needs more than `most` bytes without any token.
  explicit BfpKvStore(const BfpKvConfig& config, int64_t most = kAnyBytes);

  static std::unique_ptr<BfpKvStore> load(const BfpKvConfig& config, const std::vector<int64_t>& lengths,
                                          const KvArrays& arrays);

  // For attention, which holds the lock. `length`: tokens that the head has at the moment.

  // Keys (part 0) or values (part 1) of one page. Those of a sparse page are in the thread's own memory, which the next
  // call overwrites.
  KvUnits units(int64_t sequence, int64_t head, int64_t page, int64_t length, int part) const;
  bool is_sparse(int64_t sequence, int64_t page) const {
    return page >= first_sparse() && page < static_cast<int64_t>(sparse_[static_cast<size_t>(sequence)].size());
  }

  int64_t settled_pages(int64_t length) const override {
    return std::max<int64_t>(length - truncated_later(), 0) / kKvPageTokens;
  }

  bool has_blocks() const override { return !has_ring() && !truncated_later() && !sizes_.window && !is_sparse(); }

  const BfpKvConfig& config() const { return config_; }
  int64_t unit_count() const { return 2 * kv_units(config_.channels); }
  // The last tokens that will be truncated as others come.
  int64_t truncated_later() const { return config_.high > config_.mantissa ? config_.local : 0; }
  // The token that is truncated when token number `length` comes; -1 if there is none, or no query sees it any more and
  // it may have no memory.
  int64_t leaving(int64_t length) const;
  int bits_of(int64_t token, int64_t length) const;
  float* offsets(int64_t sequence, int64_t head) const {  // null: none
    return config_.smoothed ? offsets_.as<float>() + head_index(sequence, head) * sizes_.channels : nullptr;
  }
  // Tokens that come before offsets of keys are final.
  int64_t until_smooth(int64_t sequence) const {
    return smooth_[static_cast<size_t>(sequence)] ? 0 : std::max<int64_t>(kKvPageTokens - length(sequence), 0);
  }
  // FP16 values of the last page, [32, channels].
  uint16_t* open_values(int64_t sequence, int64_t head) const {
    return open_values_.as<uint16_t>() + head_index(sequence, head) * kKvPageTokens * sizes_.channels;
  }
  // Where the lows of such a page were when it was among the last; null if later pages have taken their place.
  uint8_t* former_lows(int64_t sequence, int64_t head, int64_t page, int64_t length) const;

  // Appends token number `length`; of values only some channels.
  void append_key(int64_t sequence, int64_t head, int64_t length, const float* key);
  void append_value(int64_t sequence, int64_t head, int64_t length, const float* value, const KvChannels& which);

 private:
  // A chunk is codes [batch, heads, pages, …], then lows if all pages have them, then exponents.
  int64_t chunk_bytes(int64_t pages) const override;
  int64_t pages_of(int64_t tokens) const override { return (tokens + kKvPageTokens - 1) / kKvPageTokens; }
  bool has_small_chunks() const override { return KvStore::has_small_chunks() || is_sparse(); }
  KvMemory block_offsets() const override { return offsets_; }
  void take_offsets(const KvMemory& offsets) override;
  std::vector<std::pair<std::string, int64_t>> array_sizes() const override;
  void copy_array(const std::string& name, uint8_t* bytes, bool save) override;
  int64_t memory_bytes() const override;
  std::unique_ptr<KvStore> copy_of(const std::vector<int64_t>& sequences, bool in_blocks) const override;
  std::unique_ptr<KvStore> twin() const override;
  void run(const KvStep& step, int threads) override;
  void shorten(int64_t sequence, int64_t length) override;

  bool is_sparse() const { return !sizes_.window && (sizes_.key_drop || sizes_.value_drop); }
  bool is_wide_everywhere() const { return config_.mantissa > 4; }
  bool has_ring() const { return config_.high > 4 && !is_wide_everywhere(); }
  int64_t head_index(int64_t sequence, int64_t head) const { return sequence * sizes_.heads + head; }
  // The first page after the initial ones that has lows.
  int64_t first_wide(int64_t length) const { return std::max<int64_t>(length - config_.local, 0) / kKvPageTokens; }
  // The first page that may be sparse.
  int64_t first_sparse() const { return (initial_pages_ + kChunkPages - 1) / kChunkPages * kChunkPages; }

  uint8_t* lows(const Chunk& chunk, int64_t sequence, int64_t head, int64_t page, int64_t length) const;
  uint8_t* ring_page(int64_t sequence, int64_t head, int64_t page) const;
  KvUnits expanded(int64_t sequence, int64_t head, int64_t page, int64_t first, int64_t count) const;
  KvUnits whole_page(int64_t sequence, int64_t head, int64_t page) const;  // keys, then values
  void sparsify();
  void densify(int64_t sequence, int64_t length);
  void settle(const KvStep& step);
  void begin_page(const KvUnits& units, int64_t count);
  void set_key(int64_t sequence, int64_t head, int64_t token, int64_t length, const float* key);
  void append_first_key(int64_t sequence, int64_t head, int64_t length, const float* key);
  void set_value(int64_t sequence, int64_t head, int64_t token, int64_t length, const KvChannels& which);
  void set_offsets(const uint16_t* keys, int64_t count, float* offsets) const;
  void shorten_head(int64_t sequence, int64_t head, int64_t length);
  void reopen(int64_t sequence, int64_t head, int64_t length);
  void copy_sequence(int64_t to, const BfpKvStore& other, int64_t from);

  BfpKvConfig config_;
  int64_t initial_pages_, ring_pages_;
  std::vector<uint8_t> smooth_;  // of each sequence: whether its offsets are final
  std::vector<std::vector<std::shared_ptr<const SparseBfpPage>>> sparse_;  // of each sequence: pages in place of chunks
  KvMemory ring_;         // lows of the first pages and the last: [batch, heads, pages, …]
  KvMemory open_values_;  // FP16 values of the last page: [batch, heads, 32, channels]
  KvMemory first_keys_;   // FP16 keys of the first page, until offsets are final
  KvMemory offsets_;      // [batch, heads, channels] floats
};

}  // namespace tilepress
