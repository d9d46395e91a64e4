// What caches that grow token by token have in common: their sequences' lengths, memory in blocks of 32 tokens, steps
// of new tokens, and the way to arrays of bytes and back.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "tilepress/kv.h"

namespace tilepress {

inline constexpr int64_t kMostTokens = int64_t{1} << 30;  // of a sequence

using KvParts = std::vector<std::pair<std::string, std::vector<uint8_t>>>;  // arrays of bytes by name

inline constexpr int64_t kAnyBytes = INT64_MAX;
int64_t total_bytes(const KvParts& parts);

struct KvSizes {
  int64_t batch, heads, channels;
  int64_t window;                // tokens that a query sees, its own included; 0: all
  int64_t key_drop, value_drop;  // % of a token's keys and values, all heads taken together, that are left out

  int64_t token_values() const { return heads * channels; }
  int64_t token_drop(int part) const { return token_values() * (part ? value_drop : key_drop) / 100; }
};

// New tokens of every sequence, and what their queries see; all arrays of floats are contiguous.
struct KvStep {
  const float *keys, *values;  // [batch, heads, count, channels]
  const uint8_t* kept;         // [batch, count]: 0 for padding, which is not stored; null: all are
  int64_t count;
  const float* queries;  // [batch, query_heads, count, channels]; null: tokens are only stored
  int64_t query_heads;
  float scaling;
  float* out;  // as queries; zeros for padding

  bool keeps(int64_t sequence, int64_t token) const { return !kept || kept[sequence * count + token]; }
};

// Zeroed memory that begins at a multiple of 64 bytes, in huge pages where it is large and the system offers them.
class KvMemory {
 public:
  KvMemory() = default;
  explicit KvMemory(int64_t size);
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

// Any thread may call public functions: each takes the cache's lock, and waits while another thread has it.
class GrowingKv {
 public:
  using Lock = std::unique_lock<std::recursive_mutex>;

  GrowingKv(const GrowingKv&) = delete;
  virtual ~GrowingKv() = default;

  Lock lock() const { return Lock(mutex_); }
  Lock try_lock() const { return Lock(mutex_, std::try_to_lock); }

  const KvSizes& sizes() const { return sizes_; }                                             // never change
  int64_t length(int64_t sequence) const { return lengths_[static_cast<size_t>(sequence)]; }  // only with the lock
  std::vector<int64_t> lengths() const;
  int64_t allocated() const;  // bytes

  // Adds tokens one after the other, and lets each one's query attend to all so far. Throws std::invalid_argument,
  // having added nothing, where a key, value or query is not finite.
  void attend(const KvStep& step, int threads);

  // Shortens each sequence to at most so many tokens; what was rounded or left out stays so.
  void crop(const std::vector<int64_t>& lengths);

  // A cache of the sequences with these numbers, each as often as it is named.
  std::unique_ptr<GrowingKv> select(const std::vector<int64_t>& sequences) const;

  // All of its state but sizes and lengths. Kinds of caches have a `load`, which throws std::invalid_argument where
  // lengths, names or sizes of arrays are not what such a cache has; what the bytes say can do no harm. No more memory
  // is asked for than arrays have bytes, but for a block or two of each sequence; empty arrays may be missing.
  KvParts save() const;

  // The first token that the query of the last of `length` tokens sees.
  int64_t first_seen(int64_t length) const { return sizes_.window ? std::max<int64_t>(length - sizes_.window, 0) : 0; }

 protected:
  static constexpr int64_t kChunkBlocks = 2;  // how far a sequence grows at a time, and so the most that is not in use

  // Consecutive blocks of all sequences.
  struct Chunk {
    KvMemory memory;
    int64_t first, blocks;
  };
  struct Span {
    int64_t first, blocks;
  };

  // Throws std::invalid_argument where the sizes cannot be; channels are a multiple of `lanes`, which are called so.
  GrowingKv(const KvSizes& sizes, int64_t lanes, const char* called);

  virtual int64_t memory_bytes() const;
  virtual std::unique_ptr<GrowingKv> copy_of(const std::vector<int64_t>& sequences) const = 0;
  virtual void run(const KvStep& step, int threads) = 0;
  virtual void shorten(int64_t sequence, int64_t length) = 0;
  virtual int64_t blocks_of(int64_t tokens) const = 0;  // that a sequence of so many has memory for
  virtual int64_t chunk_bytes(int64_t blocks) const = 0;
  virtual bool gives_back() const { return sizes_.window; }  // memory, piece by piece
  virtual std::vector<std::pair<std::string, int64_t>> part_sizes() const = 0;
  // Copies a part of the state into bytes, or back; `bytes` has the size that part_sizes says.
  virtual void move_part(const std::string& part, uint8_t* bytes, bool save) = 0;

  int64_t longest() const { return *std::max_element(lengths_.begin(), lengths_.end()); }
  int64_t shortest() const { return *std::min_element(lengths_.begin(), lengths_.end()); }
  const Chunk& chunk_of(int64_t block) const {
    return chunks_[block < skipped_ ? 0 : chunk_of_[static_cast<size_t>(block - skipped_)]];
  }
  bool is_last_of_chunk(int64_t block) const;
  Span live() const;
  void allocate(int64_t first, int64_t blocks);
  void release_unseen();

  // Throws std::invalid_argument where every sequence has at least `least` bytes, and all of them more than `most`.
  void require_room(int64_t most, int64_t least) const;
  // An empty cache takes the lengths, with memory for as many blocks as the array `part` has bytes for, `of_block`
  // each.
  void take_lengths(const std::vector<int64_t>& lengths, const KvParts& parts, const char* part, int64_t of_block);
  void take_parts(const KvParts& parts);
  // An empty cache takes the lengths of another's sequences, and as much memory.
  void take_lengths(const GrowingKv& other, const std::vector<int64_t>& sequences);
  // Those of a cache of these sequences.
  KvSizes sizes_of(const std::vector<int64_t>& sequences) const;

  KvSizes sizes_;
  std::vector<int64_t> lengths_;  // of each sequence
  std::vector<Chunk> chunks_;

 private:
  int64_t first_live_block() const;
  void reserve(int64_t count);

  mutable std::recursive_mutex mutex_;
  int64_t skipped_ = 0;           // blocks that no query saw any more when the cache was made: the first chunk's
  std::vector<size_t> chunk_of_;  // of each other block
};

// The locks of all, taken in the order of addresses, so that no two threads wait for each other. Throws
// std::invalid_argument where a cache is there twice.
std::vector<GrowingKv::Lock> lock_all(std::vector<GrowingKv*> caches);

// The smallest `drop` of `count` halves, which are more, become zero; of equals the first.
void drop_smallest(uint16_t* halves, int64_t count, int64_t drop);

}  // namespace tilepress
