// Keys and values of one attention layer in block floating point, growing token by token, and attention over them. What
// it computes is specified by kernels/attention_reference.py, where its bits lie by tilepress/kv.h.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "dispatch/kv_growing.h"
#include "dispatch/kv_thin.h"

namespace tilepress {

// Zeros are not stored where keys or values are left out, unless there is a window.
struct KvShape : KvSizes {
  int mantissa, high;      // bits of most tokens' magnitudes, and of the first `initial` and the last `local`
  int64_t initial, local;  // tokens
  int64_t smoothed;        // channels of keys that have an offset
};

// Some of a head's channels, in multiples of kKvLanes.
struct KvChannels {
  int64_t first, count;

  KvUnits of(const KvUnits& values) const { return values.unit(first / kKvLanes); }
};

class KvCache : public GrowingKv {
 public:
  // Throws std::invalid_argument where the shape cannot be, or asks for more than `most` bytes before any token comes.
  explicit KvCache(const KvShape& shape, int64_t most = kAnyBytes);

  static std::unique_ptr<KvCache> load(const KvShape& shape, const std::vector<int64_t>& lengths, const KvParts& parts);

  // Of one block of a head that has `length` tokens.
  KvUnits keys(int64_t sequence, int64_t head, int64_t block, int64_t length) const {
    return units(sequence, head, block, length, 0);
  }
  KvUnits values(int64_t sequence, int64_t head, int64_t block, int64_t length) const {
    return units(sequence, head, block, length, 1);
  }

 private:
  // A chunk is codes [batch, heads, blocks, …], then lows if all have them, then exponents.
  int64_t chunk_bytes(int64_t blocks) const override;
  int64_t blocks_of(int64_t tokens) const override { return (tokens + kKvTokens - 1) / kKvTokens; }
  bool gives_back() const override { return sizes_.window || is_thin(); }
  std::vector<std::pair<std::string, int64_t>> part_sizes() const override;
  void move_part(const std::string& part, uint8_t* bytes, bool save) override;
  int64_t memory_bytes() const override;
  std::unique_ptr<GrowingKv> copy_of(const std::vector<int64_t>& sequences) const override;
  void run(const KvStep& step, int threads) override;
  void shorten(int64_t sequence, int64_t length) override;

  bool is_thin() const { return !sizes_.window && (sizes_.key_drop || sizes_.value_drop); }
  bool is_wide_everywhere() const { return shape_.mantissa > 4; }
  bool has_ring() const { return shape_.high > 4 && !is_wide_everywhere(); }
  int64_t unit_count() const { return 2 * kv_units(shape_.channels); }
  int64_t head_index(int64_t sequence, int64_t head) const { return sequence * sizes_.heads + head; }
  int bits_of(int64_t token, int64_t length) const;
  uint16_t* open_values(int64_t sequence, int64_t head) const {
    return open_values_.as<uint16_t>() + head_index(sequence, head) * kKvTokens * sizes_.channels;
  }

  // How many of a sequence's last tokens will be cut as others come.
  int64_t changing_tokens() const { return shape_.high > shape_.mantissa ? shape_.local : 0; }

  // The first block but the initial ones that has lows.
  int64_t first_wide(int64_t length) const { return std::max<int64_t>(length - shape_.local, 0) / kKvTokens; }

  KvUnits units(int64_t sequence, int64_t head, int64_t block, int64_t length, int part) const;
  uint8_t* lows(const Chunk& chunk, int64_t sequence, int64_t head, int64_t block, int64_t length) const;
  uint8_t* ring_place(int64_t sequence, int64_t head, int64_t block) const;
  int64_t first_thin() const { return (initial_blocks_ + kChunkBlocks - 1) / kChunkBlocks * kChunkBlocks; }
  bool is_thin(int64_t sequence, int64_t block) const {
    return block >= first_thin() && block < static_cast<int64_t>(thin_[static_cast<size_t>(sequence)].size());
  }
  int64_t resting_blocks(int64_t length) const;
  KvUnits expanded(int64_t sequence, int64_t head, int64_t block, int64_t first, int64_t count) const;
  KvUnits whole(int64_t sequence, int64_t head, int64_t block) const;  // keys, and values after them
  void thin_out();
  void thicken(int64_t sequence, int64_t length);
  void settle(const KvStep& step);
  void begin_block(const KvUnits& units, int64_t count);
  int64_t leaving(int64_t length) const;
  void append_key(int64_t sequence, int64_t head, int64_t length, const float* key);
  void append_value(int64_t sequence, int64_t head, int64_t length, const float* value, const KvChannels& which);
  void set_value(int64_t sequence, int64_t head, int64_t token, int64_t length, const KvChannels& which);
  void find_offsets(const uint16_t* keys, int64_t count, float* offsets) const;
  void shorten_head(int64_t sequence, int64_t head, int64_t length);
  void reopen(int64_t sequence, int64_t head, int64_t length);
  void copy_sequence(int64_t to, const KvCache& other, int64_t from);

  friend class KvAttention;

  KvShape shape_;
  int64_t initial_blocks_, ring_blocks_;
  std::vector<uint8_t> smooth_;  // of each sequence: whether its offsets are final
  // Of each sequence the blocks that have come to rest, in the place of chunks; the first are empty.
  std::vector<std::vector<ThinBlock>> thin_;
  KvMemory ring_;         // lows of the first blocks and the last: [batch, heads, blocks, …]
  KvMemory open_values_;  // FP16 values of the last group: [batch, heads, 32, channels]
  KvMemory first_keys_;   // FP16 keys of the first group, as long as offsets are not final
  KvMemory offsets_;      // [batch, heads, channels] floats
};

}  // namespace tilepress
