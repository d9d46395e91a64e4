// Keys and values of one attention layer: what all kinds of stores have in common. Lengths of sequences, memory in
// pages of 32 tokens, steps of new tokens, saving and loading.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "dispatch/kv_memory.h"
#include "tilepress/kv_bfp.h"

namespace tilepress {

inline constexpr int64_t kMostTokens = int64_t{1} << 30;  // of a sequence

using KvArrays = std::vector<std::pair<std::string, std::vector<uint8_t>>>;  // saved state: bytes by name

inline constexpr int64_t kAnyBytes = INT64_MAX;
int64_t total_bytes(const KvArrays& arrays);

struct KvSizes {
  int64_t batch, heads, channels;
  int64_t window;                // tokens that a query sees, its own included; 0: all
  int64_t key_drop, value_drop;  // % of a token's keys and values, all heads taken together, that are left out
  bool in_blocks = false;        // memory comes page by page, and stores of one sequence can share pages

  int64_t token_values() const { return heads * channels; }
  int64_t token_drop(int part) const { return token_values() * (part ? value_drop : key_drop) / 100; }
};

// New tokens of every sequence, and their queries; all float arrays are contiguous.
struct KvStep {
  const float *keys, *values;  // [batch, heads, count, channels]
  const uint8_t* stored;       // [batch, count]: 0 for padding, which is not stored; null: all are stored
  int64_t count;
  const float* queries;  // [batch, query_heads, count, channels]; null: tokens are only stored
  int64_t query_heads;
  float scaling;
  float* out;                    // as queries; zeros for padding
  float softcap = 0;             // scores become softcap * tanh(score / softcap); 0: they stay
  const float* sinks = nullptr;  // [query_heads]: a score of no value in each one's softmax; null: none

  bool stores(int64_t sequence, int64_t token) const { return !stored || stored[sequence * count + token]; }
};

// A page of one sequence that no later token changes.
struct KvBlock {
  KvMemory page;
  KvMemory offsets;  // of keys, with the first page
};

// Thread-safe: each public function takes the store's lock, unless it says otherwise.
class KvStore {
 public:
  static constexpr int64_t kBlockTokens = kKvPageTokens;

  using Lock = std::unique_lock<std::recursive_mutex>;

  KvStore(const KvStore&) = delete;
  virtual ~KvStore() = default;

  Lock lock() const { return Lock(mutex_); }
  Lock try_lock() const { return Lock(mutex_, std::try_to_lock); }

  const KvSizes& sizes() const { return sizes_; }                                             // constant: no lock
  int64_t length(int64_t sequence) const { return lengths_[static_cast<size_t>(sequence)]; }  // the caller locks
  std::vector<int64_t> lengths() const;
  int64_t allocated() const;  // bytes

  // Appends tokens one after the other; each token's query attends to all tokens up to its own. Throws
  // std::invalid_argument, with nothing appended, if a key, value or query is not finite.
  void attend(const KvStep& step, int threads);

  // Shortens each sequence to at most so many tokens. Tokens stay as rounded or pruned.
  void crop(const std::vector<int64_t>& lengths);

  // A new store of these sequences, in this order; a sequence may be named several times.
  std::unique_ptr<KvStore> select(const std::vector<int64_t>& sequences) const;

  // Whether tokens stay as they are once their page is full; constant: no lock.
  virtual bool has_blocks() const { return false; }
  // A full block of a store of one sequence. Throws std::invalid_argument if there is none.
  KvBlock block(int64_t index) const;
  // For a store of one sequence without tokens: one like it that begins with these blocks. Throws std::invalid_argument
  // if they cannot be its first.
  std::unique_ptr<KvStore> begun_with(const std::vector<KvBlock>& blocks) const;
  // For a store of one sequence: a copy that shares the pages which no later token changes.
  std::unique_ptr<KvStore> fork() const;
  // For a store of one sequence: a copy in blocks.
  std::unique_ptr<KvStore> in_blocks() const;

  // The whole state but sizes and lengths. Each kind of store has a `load`, which throws std::invalid_argument if
  // lengths, names or sizes of arrays do not fit; the bytes themselves can do no harm. It allocates no more than the
  // arrays have, plus a page or two per sequence; empty arrays may be missing.
  KvArrays save() const;

  // The first token that is seen by the query of the last of `length` tokens.
  int64_t first_seen(int64_t length) const { return sizes_.window ? std::max<int64_t>(length - sizes_.window, 0) : 0; }

 protected:
  static constexpr int64_t kChunkPages = 2;  // growth step, and so the most pages allocated but unused

  // Consecutive pages of all sequences.
  struct Chunk {
    KvMemory memory;
    int64_t first, pages;
  };
  struct Span {
    int64_t first, pages;
    int64_t end() const { return first + pages; }
  };

  // Throws std::invalid_argument for impossible sizes; channels must be a multiple of `lanes`, called `called` in the
  // message.
  KvStore(const KvSizes& sizes, int64_t lanes, const char* called);

  virtual int64_t memory_bytes() const;
  virtual std::unique_ptr<KvStore> copy_of(const std::vector<int64_t>& sequences, bool in_blocks) const = 0;
  // A copy of all but lengths and chunks, of a store of one sequence.
  virtual std::unique_ptr<KvStore> twin() const = 0;
  // The first pages, which no later token changes, of a sequence of so many tokens.
  virtual int64_t settled_pages(int64_t length) const = 0;
  virtual void run(const KvStep& step, int threads) = 0;
  virtual void shorten(int64_t sequence, int64_t length) = 0;
  virtual int64_t pages_of(int64_t tokens) const = 0;  // that a sequence of so many tokens has in chunks
  virtual int64_t chunk_bytes(int64_t pages) const = 0;
  // Whether chunks are small, to be released or shared one by one.
  virtual bool has_small_chunks() const { return sizes_.window || sizes_.in_blocks; }
  virtual KvMemory block_offsets() const { return {}; }
  virtual void take_offsets(const KvMemory& offsets) { (void)offsets; }
  virtual std::vector<std::pair<std::string, int64_t>> array_sizes() const = 0;
  // Copies one array of the state to `bytes`, or back; `bytes` has the size that array_sizes gives.
  virtual void copy_array(const std::string& name, uint8_t* bytes, bool save) = 0;

  int64_t longest() const { return *std::max_element(lengths_.begin(), lengths_.end()); }
  int64_t shortest() const { return *std::min_element(lengths_.begin(), lengths_.end()); }
  const Chunk& chunk_of(int64_t page) const {
    return chunks_[page < skipped_ ? 0 : chunk_of_[static_cast<size_t>(page - skipped_)]];
  }
  bool is_last_of_chunk(int64_t page) const;
  Span live_pages() const;
  void allocate(int64_t first, int64_t pages);
  void release_unseen();

  // Throws std::invalid_argument if all sequences together, at `least` bytes each, need more than `most` bytes.
  void require_room(int64_t most, int64_t least) const;
  // For an empty store: takes the lengths, and allocates as many pages as the array `name` holds, `page_bytes` each.
  void take_lengths(const std::vector<int64_t>& lengths, const KvArrays& arrays, const char* name, int64_t page_bytes);
  void take_arrays(const KvArrays& arrays);
  // For an empty store: takes the lengths of another's sequences, and allocates as much.
  void take_lengths(const KvStore& other, const std::vector<int64_t>& sequences);
  // Sizes of a store of these sequences.
  KvSizes sizes_of(const std::vector<int64_t>& sequences, bool in_blocks) const;

  KvSizes sizes_;
  std::vector<int64_t> lengths_;  // of each sequence
  std::vector<Chunk> chunks_;

 private:
  int64_t full_blocks() const { return has_blocks() && sizes_.in_blocks ? length(0) / kBlockTokens : 0; }
  void own_from(int64_t page);
  int64_t first_live_page() const;
  void reserve(int64_t count);

  mutable std::recursive_mutex mutex_;
  int64_t skipped_ = 0;           // pages that were out of every query's sight when the store was made: the first chunk
  std::vector<size_t> chunk_of_;  // of each later page
};

// Locks all stores, in the order of addresses, so that two threads cannot deadlock. Throws std::invalid_argument if a
// store is there twice.
std::vector<KvStore::Lock> lock_all(std::vector<KvStore*> stores);

}  // namespace tilepress
