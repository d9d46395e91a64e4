#include "dispatch/kv_store.h"

#include <atomic>
#include <bit>
#include <functional>

#include "dispatch/checks.h"
#include "dispatch/parallel.h"

namespace tilepress {
namespace {

// Infinities and NaN have all exponent bits set. Compared as integers, which compilers vectorise.
bool all_finite(const float* values, int64_t count, int threads) {
  constexpr int64_t kPart = 1 << 15;  // values per job: less work than waking a thread
  std::atomic<bool> finite = true;
  parallel_for((count + kPart - 1) / kPart, threads, [&](int, int64_t part) {
    uint32_t bad = 0;
    for (int64_t i = part * kPart; i < std::min(count, (part + 1) * kPart); ++i) {
      bad |= (std::bit_cast<uint32_t>(values[i]) & 0x7f800000) == 0x7f800000;
    }
    if (bad) finite = false;
  });
  return finite;
}

// The array of that name, or an empty one.
const std::vector<uint8_t>& find(const KvArrays& arrays, const std::string& name) {
  for (const auto& [its_name, bytes] : arrays) {
    if (its_name == name) return bytes;
  }
  static const std::vector<uint8_t> empty;
  return empty;
}

}  // namespace

KvStore::KvStore(const KvSizes& sizes, int64_t lanes, const char* called) : sizes_(sizes) {
  require(sizes.batch >= 1 && sizes.heads >= 1 && sizes.batch <= 1 << 20 && sizes.heads <= 1 << 16,
          "a cache has at least one sequence and one head");
  require(sizes.channels >= lanes && sizes.channels % lanes == 0 && sizes.channels <= 1 << 16,
          "heads of " + std::to_string(sizes.channels) + " channels cannot be cut in " + called + " of " +
              std::to_string(lanes));
  require(sizes.window >= 0, "a window has tokens");
  require(sizes.key_drop >= 0 && sizes.key_drop < 100 && sizes.value_drop >= 0 && sizes.value_drop < 100,
          "0 to 99 % of keys and values are left out");
  require(sizes.token_values() <= 1 << 25, "the cache is too large");
  lengths_.assign(size(sizes.batch), 0);
}

std::vector<KvStore::Lock> lock_all(std::vector<KvStore*> stores) {
  std::sort(stores.begin(), stores.end(), std::less<>());
  require(std::adjacent_find(stores.begin(), stores.end()) == stores.end(), "two layers have the same cache");
  std::vector<KvStore::Lock> locks;
  for (const KvStore* store : stores) locks.push_back(store->lock());
  return locks;
}

std::vector<int64_t> KvStore::lengths() const {
  const Lock mine = lock();
  return lengths_;
}

int64_t KvStore::allocated() const {
  const Lock mine = lock();
  return memory_bytes();
}

std::unique_ptr<KvStore> KvStore::select(const std::vector<int64_t>& sequences) const {
  const Lock mine = lock();
  return copy_of(sequences, sizes_.in_blocks);
}

int64_t KvStore::memory_bytes() const {
  int64_t total = 0;
  for (const Chunk& chunk : chunks_) total += chunk.memory.size();
  return total;
}

void KvStore::attend(const KvStep& step, int threads) {
  const Lock mine = lock();
  const int64_t per_head = sizes_.batch * step.count * sizes_.channels;
  const bool finite = all_finite(step.keys, per_head * sizes_.heads, threads) &&
                      all_finite(step.values, per_head * sizes_.heads, threads) &&
                      (!step.queries || all_finite(step.queries, per_head * step.query_heads, threads));
  require(finite, "queries, keys and values must be finite");
  reserve(step.count);
  run(step, threads);
}

void KvStore::crop(const std::vector<int64_t>& lengths) {
  const Lock mine = lock();
  require(lengths.size() == lengths_.size(), "a length is wanted for each sequence");
  const int64_t first = live_pages().first;
  for (size_t i = 0; i < lengths.size(); ++i) {
    require(lengths[i] >= 0, "lengths are not negative");
    require(lengths[i] >= lengths_[i] || first_seen(lengths[i] + 1) / kKvPageTokens >= first,
            "tokens that left the window are gone: the cache cannot be shortened so far");
  }
  for (size_t i = 0; i < lengths.size(); ++i) {
    if (lengths[i] >= lengths_[i]) continue;
    own_from(std::max<int64_t>(lengths[i] - 1, 0) / kKvPageTokens);
    shorten(static_cast<int64_t>(i), lengths[i]);
    lengths_[i] = lengths[i];
  }
}

KvBlock KvStore::block(int64_t index) const {
  const Lock mine = lock();
  require(sizes_.batch == 1 && index >= 0 && index < full_blocks(), "the cache has no such block");
  return {chunks_[size(index)].memory, index ? KvMemory() : block_offsets()};
}

std::unique_ptr<KvStore> KvStore::begun_with(const std::vector<KvBlock>& blocks) const {
  const Lock mine = lock();
  require(sizes_.batch == 1 && !longest(), "the cache to begin with has one sequence, without tokens");
  require(blocks.empty() || has_blocks(), "such a cache shares no blocks");
  const bool with_offsets = !blocks.empty() && blocks.front().offsets.size() == block_offsets().size();
  require(blocks.empty() || with_offsets, "the first block is another cache's, or not a first one");
  std::unique_ptr<KvStore> store = copy_of({0}, true);
  for (const KvBlock& block : blocks) {
    require(block.page.size() == chunk_bytes(1), "a block is another cache's");
    store->chunk_of_.push_back(store->chunks_.size());
    store->chunks_.push_back({block.page, static_cast<int64_t>(store->chunks_.size()), 1});
  }
  store->lengths_[0] = static_cast<int64_t>(blocks.size()) * kBlockTokens;
  if (!blocks.empty()) store->take_offsets(blocks.front().offsets);
  return store;
}

std::unique_ptr<KvStore> KvStore::fork() const {
  const Lock mine = lock();
  require(sizes_.batch == 1, "one sequence can be forked, not several");
  std::unique_ptr<KvStore> store = twin();
  store->sizes_ = sizes_;
  store->lengths_ = lengths_;
  store->chunks_ = chunks_;
  store->skipped_ = skipped_;
  store->chunk_of_ = chunk_of_;
  store->own_from(settled_pages(length(0)));
  return store;
}

std::unique_ptr<KvStore> KvStore::in_blocks() const {
  const Lock mine = lock();
  require(sizes_.batch == 1, "one sequence has blocks, not several");
  return copy_of({0}, true);
}

// Before pages from `page` on change: memory that other stores share is copied.
void KvStore::own_from(int64_t page) {
  for (Chunk& chunk : chunks_) {
    if (chunk.first + chunk.pages > page && chunk.memory.is_shared()) chunk.memory = chunk.memory.clone();
  }
}

bool KvStore::is_last_of_chunk(int64_t page) const {
  const Chunk& chunk = chunk_of(page);
  return page + 1 == chunk.first + chunk.pages;
}

// With a window, pages that no query sees have no memory: the pages after those.
KvStore::Span KvStore::live_pages() const {
  int64_t first = 0;
  for (const Chunk& chunk : chunks_) first += sizes_.window && !chunk.memory.size() ? chunk.pages : 0;
  return {first, std::max<int64_t>(pages_of(longest()) - first, 0)};
}

// Room for `count` more tokens: all that a prompt needs at once, or a chunk.
void KvStore::reserve(int64_t count) {
  require(count <= kMostTokens - longest(), "a cache holds 2^30 tokens of a sequence at most");
  const int64_t pages = skipped_ + static_cast<int64_t>(chunk_of_.size());
  allocate(pages, pages_of(longest() + count) - pages);
}

// Memory for `pages` pages from `first` on, rounded up to chunks; pages before them in an empty store get none. Small
// chunks where they will be released one by one.
void KvStore::allocate(int64_t first, int64_t pages) {
  if (chunks_.empty() && first) {
    chunks_.push_back({KvMemory(), 0, first});
    skipped_ = first;
  }
  for (int64_t end = first + pages; first < end;) {
    const int64_t step = sizes_.in_blocks ? 1 : kChunkPages, left = (end - first + step - 1) / step * step;
    const int64_t count = has_small_chunks() ? step : left;
    chunks_.push_back({KvMemory(chunk_bytes(count)), first, count});
    chunk_of_.resize(chunk_of_.size() + size(count), chunks_.size() - 1);
    first += count;
  }
}

// The first page that has memory in a store of such lengths.
int64_t KvStore::first_live_page() const {
  return first_seen(shortest() + 1) / kKvPageTokens / kChunkPages * kChunkPages;
}

void KvStore::release_unseen() {
  const int64_t seen = first_live_page();
  for (Chunk& chunk : chunks_) {
    if (chunk.first + chunk.pages <= seen && chunk.memory.size()) chunk.memory = KvMemory();
  }
}

KvArrays KvStore::save() const {
  const Lock lock = this->lock();
  KvArrays arrays;
  auto& mine = const_cast<KvStore&>(*this);  // unchanged when saving
  for (const auto& [name, bytes] : array_sizes()) {
    arrays.emplace_back(name, std::vector<uint8_t>(size(bytes)));
    mine.copy_array(name, arrays.back().second.data(), true);
  }
  return arrays;
}

int64_t total_bytes(const KvArrays& arrays) {
  int64_t total = 0;
  for (const auto& [_, bytes] : arrays) total += static_cast<int64_t>(bytes.size());
  return total;
}

void KvStore::require_room(int64_t most, int64_t least) const {
  require(most / sizes_.batch >= least, std::to_string(sizes_.batch) + " sequences have more bytes than there are");
}

// Nothing is allocated for tokens whose bytes are not there. Pages that no query sees any more may be missing.
void KvStore::take_lengths(const std::vector<int64_t>& lengths, const KvArrays& arrays, const char* name,
                           int64_t page_bytes) {
  require(lengths.size() == lengths_.size(), "there is not one length for each sequence");
  for (int64_t length : lengths) {
    require(length >= 0 && length <= kMostTokens, "a sequence cannot have " + std::to_string(length) + " tokens");
  }
  lengths_ = lengths;
  const auto bytes = static_cast<int64_t>(find(arrays, name).size());
  const int64_t pages = bytes / page_bytes, first = pages_of(longest()) - pages;
  require(bytes % page_bytes == 0 && first >= 0 && first <= first_live_page() && first % kChunkPages == 0,
          name + (" have " + std::to_string(bytes)) + " bytes, which are not the blocks of such sequences");
  allocate(first, pages);
}

void KvStore::take_arrays(const KvArrays& arrays) {
  int64_t taken = 0;
  for (const auto& [name, bytes] : array_sizes()) {
    const auto& array = find(arrays, name);
    require(static_cast<int64_t>(array.size()) == bytes,
            name + " has " + std::to_string(array.size()) + " bytes, not " + std::to_string(bytes));
    copy_array(name, const_cast<uint8_t*>(array.data()), false);  // unchanged when loading
    taken += bytes;
  }
  require(taken == total_bytes(arrays), "there are arrays that such a cache does not have");
}

void KvStore::take_lengths(const KvStore& other, const std::vector<int64_t>& sequences) {
  for (size_t i = 0; i < sequences.size(); ++i) lengths_[i] = other.length(sequences[i]);
  const Span live = other.live_pages();
  allocate(live.first, live.pages);
}

KvSizes KvStore::sizes_of(const std::vector<int64_t>& sequences, bool in_blocks) const {
  for (int64_t from : sequences) require(from >= 0 && from < sizes_.batch, "there is no such sequence");
  KvSizes sizes = sizes_;
  sizes.batch = static_cast<int64_t>(sequences.size());
  sizes.in_blocks = in_blocks;
  return sizes;
}

}  // namespace tilepress
