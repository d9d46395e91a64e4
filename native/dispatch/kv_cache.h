// Keys and values of one attention layer in block floating point, growing token by token, and attention over them. What
// it computes is specified by kernels/attention_reference.py, where its bits lie by tilepress/kv.h.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "dispatch/kv_thin.h"
#include "dispatch/kv_units.h"

namespace tilepress {

struct KvShape {
  int64_t batch, heads, channels;
  int mantissa, high;      // bits of most tokens' magnitudes, and of the first `initial` and the last `local`
  int64_t initial, local;  // tokens
  int64_t window;          // tokens that a query sees, its own included; 0: all
  int64_t smoothed;        // channels of keys that have an offset
  bool thin;               // zeros are not stored; of no use where there is a window
};

inline constexpr int64_t kMostTokens = int64_t{1} << 30;  // of a sequence

// New tokens of every sequence, and what their queries see; all arrays of floats are contiguous.
struct KvStep {
  const float *keys, *values;  // [batch, heads, count, channels]
  const uint8_t* kept;         // [batch, count]: 0 for padding, which is not stored; null: all are
  int64_t count;
  const float* queries;  // [batch, query_heads, count, channels]; null: tokens are only stored
  int64_t query_heads;
  float scaling;
  float* out;  // as queries; zeros for padding
};

// Zeroed memory that begins at a multiple of 64 bytes, in huge pages where it is large and the system offers them.
class KvMemory {
 public:
  KvMemory() = default;
  explicit KvMemory(int64_t size);
  KvMemory(const KvMemory& other);
  KvMemory(KvMemory&&) = default;
  KvMemory& operator=(KvMemory&&) = default;

  uint8_t* data() const { return data_.get(); }
  int64_t size() const { return size_; }
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data_.get());
  }

 private:
  struct Free {
    void operator()(uint8_t* memory) const { std::free(memory); }
  };
  std::unique_ptr<uint8_t, Free> data_;
  int64_t size_ = 0;
};

class KvCache {
 public:
  // Throws std::invalid_argument where the shape cannot be.
  explicit KvCache(const KvShape& shape);

  const KvShape& shape() const { return shape_; }
  int64_t length(int64_t sequence) const { return lengths_[static_cast<size_t>(sequence)]; }
  int64_t allocated() const;  // bytes

  // Adds tokens one after the other, and lets each one's query attend to all so far. Throws std::invalid_argument,
  // having added nothing, where a key, value or query is not finite.
  void attend(const KvStep& step, int threads);

  // Shortens each sequence to at most so many tokens. The last group of values goes on from what was kept of it.
  void crop(const std::vector<int64_t>& lengths);

  // A cache of the sequences with these numbers, each as often as it is named.
  std::unique_ptr<KvCache> select(const std::vector<int64_t>& sequences) const;

  // All of its state but shape and lengths, as arrays of bytes by name, and back. Loading throws std::invalid_argument
  // where lengths, names or sizes are not what such a cache has; what the bytes say can do no harm.
  std::vector<std::pair<std::string, std::vector<uint8_t>>> save() const;
  static std::unique_ptr<KvCache> load(const KvShape& shape, const std::vector<int64_t>& lengths,
                                       std::vector<std::pair<std::string, std::vector<uint8_t>>> parts);

  // Of one block of a head that has `length` tokens.
  KvUnits keys(int64_t sequence, int64_t head, int64_t block, int64_t length) const {
    return units(sequence, head, block, length, 0);
  }
  KvUnits values(int64_t sequence, int64_t head, int64_t block, int64_t length) const {
    return units(sequence, head, block, length, 1);
  }
  // The first token that the query of the last of `length` tokens sees.
  int64_t first_seen(int64_t length) const { return shape_.window ? std::max<int64_t>(length - shape_.window, 0) : 0; }

 private:
  static constexpr int64_t kChunkBlocks = 2;  // how far a sequence grows at a time, and so the most that is not in use

  // Consecutive blocks of all sequences and heads: codes [batch, heads, blocks, …], then exponents, then lows if any.
  struct Chunk {
    KvMemory memory;
    int64_t first, blocks;
  };

  bool is_wide_everywhere() const { return shape_.mantissa > 4; }
  bool has_ring() const { return shape_.high > 4 && !is_wide_everywhere(); }
  int64_t unit_count() const { return 2 * kv_units(shape_.channels); }
  int64_t chunk_bytes(int64_t blocks) const;
  int64_t head_index(int64_t sequence, int64_t head) const { return sequence * shape_.heads + head; }
  int bits_of(int64_t token, int64_t length) const;

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
  void reserve(const KvStep& step);
  void settle(const KvStep& step);
  void begin_block(const KvUnits& units);
  int64_t leaving(int64_t length) const;
  void demote_key(int64_t sequence, int64_t head, int64_t token, int64_t length);
  void demote_value(int64_t sequence, int64_t head, int64_t token, int64_t length);
  void append_key(int64_t sequence, int64_t head, int64_t length, const float* key);
  void set_key(int64_t sequence, int64_t head, int64_t token, int64_t length, const uint16_t* key);
  void append_value(int64_t sequence, int64_t head, int64_t length, const float* value);
  void set_channel(int64_t sequence, int64_t head, int64_t length, int64_t channel);
  void find_offsets(const uint16_t* keys, int64_t count, float* offsets) const;
  void shorten(int64_t sequence, int64_t head, int64_t length);
  void reopen(int64_t sequence, int64_t head, int64_t length);
  struct Span {
    int64_t first, blocks;
  };
  Span live() const;
  int64_t first_live_block(int64_t shortest) const;
  void allocate(int64_t first, int64_t blocks);
  std::vector<std::pair<std::string, int64_t>> part_sizes() const;
  void move_part(const std::string& part, uint8_t* bytes, bool save);
  void take(std::vector<std::pair<std::string, std::vector<uint8_t>>> parts);
  void copy_sequence(int64_t to, const KvCache& other, int64_t from);

  friend class KvAttention;

  KvShape shape_;
  int64_t initial_blocks_, ring_blocks_;
  std::vector<int64_t> lengths_;  // of each sequence
  std::vector<uint8_t> smooth_;   // of each sequence: whether its offsets are final
  std::vector<Chunk> chunks_;
  std::vector<size_t> chunk_of_;  // of each block
  // Of each sequence the blocks that have come to rest, in the place of chunks; the first are empty.
  std::vector<std::vector<ThinBlock>> thin_;
  KvMemory ring_;         // lows of the first blocks and the last: [batch, heads, blocks, …]
  KvMemory open_values_;  // FP16 values of the last group: [batch, heads, 32, channels]
  KvMemory first_keys_;   // FP16 keys of the first group, as long as offsets are not final
  KvMemory offsets_;      // [batch, heads, channels] floats
};

}  // namespace tilepress
