// Keys and values of one attention layer as halves of which the smallest are left out, growing token by token, and
// attention over them. What it computes is specified by kernels/attention_reference.py, where its bits lie by
// tilepress/kv_sparse.h.
//
// The last block of a sequence, as long as it is not full, has all values: it is open. When its last token has been
// attended to it is thinned out, token by token, and becomes a slot: the masks of all heads, where the values of
// each begin, and the values. Slots are of one size, since a block keeps so many values and no more.
#pragma once

#include "dispatch/kv_cache.h"
#include "tilepress/kv_sparse.h"

namespace tilepress {

struct SparseKvShape {
  int64_t batch, heads, channels;
  Real type;                     // bf16 or f16
  int64_t key_drop, value_drop;  // % of a token's keys and values that are left out
  int64_t window;                // tokens that a query sees, its own included; 0: all
};

class SparseKvCache {
 public:
  // Throws std::invalid_argument where the shape cannot be.
  explicit SparseKvCache(const SparseKvShape& shape);

  const SparseKvShape& shape() const { return shape_; }
  int64_t length(int64_t sequence) const { return lengths_[static_cast<size_t>(sequence)]; }
  int64_t allocated() const;  // bytes

  // As KvCache has them.
  void attend(const KvStep& step, int threads);
  void crop(const std::vector<int64_t>& lengths);
  std::unique_ptr<SparseKvCache> select(const std::vector<int64_t>& sequences) const;
  std::vector<std::pair<std::string, std::vector<uint8_t>>> save() const;
  static std::unique_ptr<SparseKvCache> load(const SparseKvShape& shape, const std::vector<int64_t>& lengths,
                                             std::vector<std::pair<std::string, std::vector<uint8_t>>> parts);

  // Of a block of a head: 0 keys, 1 values. `open`: the block that is not full yet.
  SparseUnits units(int64_t sequence, int64_t head, int64_t block, int part, bool open) const;

  // The first token that the query of the last of `length` tokens sees.
  int64_t first_seen(int64_t length) const { return shape_.window ? std::max<int64_t>(length - shape_.window, 0) : 0; }

 private:
  // Slots of consecutive blocks: [batch, blocks].
  struct Chunk {
    KvMemory memory;
    int64_t first, blocks;
  };
  struct Slot {
    uint32_t *masks, *starts;  // [heads, 2, channels], [heads, 2]
    uint16_t* values;
  };

  int64_t part_values() const { return shape_.heads * kSparseTokens * shape_.channels; }  // of a block, all kept
  int64_t token_drop(int part) const;
  int64_t room(int part) const;  // values that a block keeps at most
  int64_t mask_count() const { return 2 * shape_.heads * shape_.channels; }
  int64_t slot_bytes() const;
  Slot slot(int64_t sequence, int64_t block) const;
  uint16_t* open(int64_t sequence, int64_t head, int part) const;
  int64_t full_blocks() const;  // of the longest sequence
  int64_t place(int part, int64_t token, int64_t channel) const;

  void reserve(const KvStep& step);
  void allocate(int64_t first, int64_t blocks);
  void release_unseen();
  void append(int64_t sequence, int64_t head, int64_t token, const float* key, const float* value);
  void close(int64_t sequence, int64_t block, int part);
  void thin_out(int64_t sequence, int part);
  void reopen(int64_t sequence, int64_t block);
  void set_starts(int64_t sequence, int64_t block);
  struct Span {
    int64_t first, blocks;
  };
  Span live() const;
  int64_t first_live_block(int64_t shortest) const;
  std::vector<std::pair<std::string, int64_t>> part_sizes() const;
  void move_part(const std::string& part, uint8_t* bytes, bool save);
  void take(std::vector<std::pair<std::string, std::vector<uint8_t>>> parts);
  void copy_sequence(int64_t to, const SparseKvCache& other, int64_t from);

  friend class SparseAttention;

  SparseKvShape shape_;
  std::vector<int64_t> lengths_;  // of each sequence
  std::vector<Chunk> chunks_;
  std::vector<size_t> chunk_of_;  // of each block
  KvMemory open_;                 // [batch, 2, heads, 32 * channels] halves
  std::vector<uint32_t> all_;     // masks of a head's keys, or values, where all are there
};

}  // namespace tilepress
