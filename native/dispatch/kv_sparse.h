// Keys and values of one attention layer as halves of which the smallest are left out, growing token by token, and
// attention over them. What it computes is specified by kernels/attention_reference.py, where its bits lie by
// tilepress/kv_sparse.h.
//
// The last block of a sequence, as long as it is not full, has all values: it is open. When its last token has been
// attended to it is thinned out, token by token, and becomes a slot: the masks of all heads, where the values of
// each begin, and the values. Slots are of one size, since a block keeps so many values and no more.
#pragma once

#include "dispatch/kv_growing.h"
#include "tilepress/kv_sparse.h"

namespace tilepress {

static_assert(kSparseTokens == kKvTokens);

struct SparseKvShape : KvSizes {
  FloatType type;  // bf16 or f16
};

class SparseKvCache : public GrowingKv {
 public:
  // Throws std::invalid_argument where the shape cannot be, or asks for more than `most` bytes before any token comes.
  explicit SparseKvCache(const SparseKvShape& shape, int64_t most = kAnyBytes);

  static std::unique_ptr<SparseKvCache> load(const SparseKvShape& shape, const std::vector<int64_t>& lengths,
                                             const KvParts& parts);

  // Of a block of a head: 0 keys, 1 values. `open`: the block that is not full yet.
  SparseUnits units(int64_t sequence, int64_t head, int64_t block, int part, bool open) const;

 private:
  struct Slot {
    uint32_t *masks, *starts;  // [heads, 2, channels], [heads, 2]
    uint16_t* values;
  };

  // A chunk is slots of consecutive blocks: [batch, blocks].
  int64_t chunk_bytes(int64_t blocks) const override { return sizes_.batch * blocks * slot_bytes() + kSparseSlack; }
  int64_t blocks_of(int64_t tokens) const override { return tokens / kSparseTokens; }
  std::vector<std::pair<std::string, int64_t>> part_sizes() const override;
  void move_part(const std::string& part, uint8_t* bytes, bool save) override;
  int64_t memory_bytes() const override;
  std::unique_ptr<GrowingKv> copy_of(const std::vector<int64_t>& sequences) const override;
  void run(const KvStep& step, int threads) override;
  void shorten(int64_t sequence, int64_t length) override;

  int64_t part_values() const { return sizes_.token_values() * kSparseTokens; }  // of a block, all kept
  // Values that a block keeps at most.
  int64_t room(int part) const { return part_values() - kSparseTokens * sizes_.token_drop(part); }
  int64_t mask_count() const { return 2 * sizes_.token_values(); }
  int64_t slot_bytes() const;
  Slot slot(int64_t sequence, int64_t block) const;
  uint16_t* open(int64_t sequence, int64_t head, int part) const;
  uint16_t* open_token(int64_t sequence, int64_t head, int part, int64_t token) const;

  void append(int64_t sequence, int64_t head, int64_t token, const float* key, const float* value);
  void close(int64_t sequence, int64_t block, int part);
  void thin_out(int64_t sequence, int part, int64_t token);
  void reopen(int64_t sequence, int64_t block);
  void set_starts(int64_t sequence, int64_t block);
  void copy_sequence(int64_t to, const SparseKvCache& other, int64_t from);

  friend class SparseAttention;

  FloatType type_;
  KvMemory open_;                   // [batch, 2, heads, 32 * channels] halves
  std::vector<uint32_t> all_;       // masks of a head's keys, or values, where all are there
  std::vector<int64_t> places_[2];  // of each channel of a token's keys and values in the open block
};

}  // namespace tilepress
