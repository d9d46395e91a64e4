#include "dispatch/kv_growing.h"

#include <atomic>
#include <bit>
#include <cstring>
#include <functional>
#include <new>
#include <stdexcept>

#include "dispatch/matrix.h"
#include "dispatch/parallel.h"

namespace tilepress {
namespace {

size_t size(int64_t count) { return static_cast<size_t>(count); }

void require(bool condition, const std::string& message) {
  if (!condition) throw std::invalid_argument(message);
}

// Exponents of all ones are infinities and NaN; by integers, which compilers vectorise.
bool all_finite(const float* values, int64_t count, int threads) {
  constexpr int64_t kPart = 1 << 15;  // what one thread is done with before another has begun
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
const std::vector<uint8_t>& find(const KvParts& parts, const std::string& name) {
  for (const auto& [found, bytes] : parts) {
    if (found == name) return bytes;
  }
  static const std::vector<uint8_t> empty;
  return empty;
}

// Of so many halves: below `magnitude` all are dropped, and the first `equals` of those that have it.
struct Limit {
  int magnitude;
  int64_t equals;
};

// By the upper eight of fifteen bits, then by the others.
Limit find_limit(const uint16_t* halves, int64_t count, int64_t drop) {
  int64_t upper[256] = {}, lower[128] = {};
  for (int64_t i = 0; i < count; ++i) ++upper[halves[i] >> 7 & 255];
  int high = 0, low = 0;
  while (drop >= upper[high]) drop -= upper[high++];
  for (int64_t i = 0; i < count; ++i) lower[halves[i] & 127] += (halves[i] >> 7 & 255) == high;
  while (drop >= lower[low]) drop -= lower[low++];
  return {high << 7 | low, drop};
}

}  // namespace

void drop_smallest(uint16_t* halves, int64_t count, int64_t drop) {
  if (!drop) return;
  Limit limit = find_limit(halves, count, drop);
  for (int64_t i = 0; i < count; ++i) {
    const int magnitude = halves[i] & 0x7fff;
    const bool is_limit = magnitude == limit.magnitude && limit.equals > 0;
    limit.equals -= is_limit;
    if (magnitude < limit.magnitude || is_limit) halves[i] = 0;
  }
}

KvMemory::KvMemory(int64_t size) : size_(size) {
  constexpr int64_t kAlignment = 64, kHuge = int64_t{2} << 20;
  if (!size) return;
  const int64_t alignment = size >= kHuge ? kHuge : kAlignment;
  const int64_t whole = (size + kAlignment - 1) / kAlignment * kAlignment;
  void* memory = nullptr;
  if (posix_memalign(&memory, tilepress::size(alignment), tilepress::size(whole))) throw std::bad_alloc();
  data_.reset(static_cast<uint8_t*>(memory));
  if (size >= kHuge) advise_huge_pages(data_.get(), size);
  std::memset(data_.get(), 0, tilepress::size(whole));
}

GrowingKv::GrowingKv(const KvSizes& sizes, int64_t lanes, const char* called) : sizes_(sizes) {
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

std::vector<GrowingKv::Lock> lock_all(std::vector<GrowingKv*> caches) {
  std::sort(caches.begin(), caches.end(), std::less<>());
  require(std::adjacent_find(caches.begin(), caches.end()) == caches.end(), "two layers have the same cache");
  std::vector<GrowingKv::Lock> locks;
  for (const GrowingKv* cache : caches) locks.push_back(cache->lock());
  return locks;
}

std::vector<int64_t> GrowingKv::lengths() const {
  const Lock mine = lock();
  return lengths_;
}

int64_t GrowingKv::allocated() const {
  const Lock mine = lock();
  return memory_bytes();
}

std::unique_ptr<GrowingKv> GrowingKv::select(const std::vector<int64_t>& sequences) const {
  const Lock mine = lock();
  return copy_of(sequences);
}

int64_t GrowingKv::memory_bytes() const {
  int64_t total = 0;
  for (const Chunk& chunk : chunks_) total += chunk.memory.size();
  return total;
}

void GrowingKv::attend(const KvStep& step, int threads) {
  const Lock mine = lock();
  const int64_t per_head = sizes_.batch * step.count * sizes_.channels;
  const bool finite = all_finite(step.keys, per_head * sizes_.heads, threads) &&
                      all_finite(step.values, per_head * sizes_.heads, threads) &&
                      (!step.queries || all_finite(step.queries, per_head * step.query_heads, threads));
  require(finite, "queries, keys and values must be finite");
  reserve(step.count);
  run(step, threads);
}

void GrowingKv::crop(const std::vector<int64_t>& lengths) {
  const Lock mine = lock();
  require(lengths.size() == lengths_.size(), "a length is wanted for each sequence");
  const int64_t first = live().first;
  for (size_t i = 0; i < lengths.size(); ++i) {
    require(lengths[i] >= 0, "lengths are not negative");
    require(lengths[i] >= lengths_[i] || first_seen(lengths[i] + 1) / kKvTokens >= first,
            "tokens that left the window are gone: the cache cannot be shortened so far");
  }
  for (size_t i = 0; i < lengths.size(); ++i) {
    if (lengths[i] >= lengths_[i]) continue;
    shorten(static_cast<int64_t>(i), lengths[i]);
    lengths_[i] = lengths[i];
  }
}

bool GrowingKv::is_last_of_chunk(int64_t block) const {
  const Chunk& chunk = chunk_of(block);
  return block + 1 == chunk.first + chunk.blocks;
}

// The first block that has memory of its own, where those no query sees have none, and how many there are from there
// on.
GrowingKv::Span GrowingKv::live() const {
  int64_t first = 0;
  for (const Chunk& chunk : chunks_) first += sizes_.window && !chunk.memory.size() ? chunk.blocks : 0;
  return {first, std::max<int64_t>(blocks_of(longest()) - first, 0)};
}

// Room for so many tokens more: what a prompt needs at once, and then a little at a time.
void GrowingKv::reserve(int64_t count) {
  require(count <= kMostTokens - longest(), "a cache holds 2^30 tokens of a sequence at most");
  const int64_t blocks = skipped_ + static_cast<int64_t>(chunk_of_.size());
  allocate(blocks, blocks_of(longest() + count) - blocks);
}

// Memory for so many blocks more, from `first` on, and one to spare; none for those before it in a cache that has none
// yet. In small pieces where they will be given back one by one.
void GrowingKv::allocate(int64_t first, int64_t blocks) {
  if (chunks_.empty() && first) {
    chunks_.push_back({KvMemory(), 0, first});
    skipped_ = first;
  }
  for (int64_t end = first + blocks; first < end;) {
    const int64_t left = (end - first + kChunkBlocks - 1) / kChunkBlocks * kChunkBlocks;
    const int64_t count = gives_back() ? kChunkBlocks : left;
    chunks_.push_back({KvMemory(chunk_bytes(count)), first, count});
    chunk_of_.resize(chunk_of_.size() + size(count), chunks_.size() - 1);
    first += count;
  }
}

// The first block that has memory in a cache of such lengths.
int64_t GrowingKv::first_live_block() const {
  return first_seen(shortest() + 1) / kKvTokens / kChunkBlocks * kChunkBlocks;
}

void GrowingKv::release_unseen() {
  const int64_t seen = first_live_block();
  for (Chunk& chunk : chunks_) {
    if (chunk.first + chunk.blocks <= seen && chunk.memory.size()) chunk.memory = KvMemory();
  }
}

KvParts GrowingKv::save() const {
  const Lock lock = this->lock();
  KvParts parts;
  auto& mine = const_cast<GrowingKv&>(*this);  // which saving leaves alone
  for (const auto& [name, bytes] : part_sizes()) {
    parts.emplace_back(name, std::vector<uint8_t>(size(bytes)));
    mine.move_part(name, parts.back().second.data(), true);
  }
  return parts;
}

int64_t total_bytes(const KvParts& parts) {
  int64_t total = 0;
  for (const auto& [_, bytes] : parts) total += static_cast<int64_t>(bytes.size());
  return total;
}

void GrowingKv::require_room(int64_t most, int64_t least) const {
  require(most / sizes_.batch >= least, std::to_string(sizes_.batch) + " sequences have more bytes than there are");
}

// Nothing is allocated for tokens whose bytes are not there; blocks that no query sees any more may be missing.
void GrowingKv::take_lengths(const std::vector<int64_t>& lengths, const KvParts& parts, const char* part,
                             int64_t of_block) {
  require(lengths.size() == lengths_.size(), "there is not one length for each sequence");
  for (int64_t length : lengths) {
    require(length >= 0 && length <= kMostTokens, "a sequence cannot have " + std::to_string(length) + " tokens");
  }
  lengths_ = lengths;
  const auto bytes = static_cast<int64_t>(find(parts, part).size());
  const int64_t blocks = bytes / of_block, first = blocks_of(longest()) - blocks;
  require(bytes % of_block == 0 && first >= 0 && first <= first_live_block() && first % kChunkBlocks == 0,
          part + (" have " + std::to_string(bytes)) + " bytes, which are not the blocks of such sequences");
  allocate(first, blocks);
}

void GrowingKv::take_parts(const KvParts& parts) {
  int64_t taken = 0;
  for (const auto& [name, bytes] : part_sizes()) {
    const auto& found = find(parts, name);
    require(static_cast<int64_t>(found.size()) == bytes,
            name + " has " + std::to_string(found.size()) + " bytes, not " + std::to_string(bytes));
    move_part(name, const_cast<uint8_t*>(found.data()), false);  // which loading leaves alone
    taken += bytes;
  }
  require(taken == total_bytes(parts), "there are arrays that such a cache does not have");
}

void GrowingKv::take_lengths(const GrowingKv& other, const std::vector<int64_t>& sequences) {
  for (size_t i = 0; i < sequences.size(); ++i) lengths_[i] = other.length(sequences[i]);
  const Span k_panel = other.live();
  allocate(k_panel.first, k_panel.blocks);
}

KvSizes GrowingKv::sizes_of(const std::vector<int64_t>& sequences) const {
  for (int64_t from : sequences) require(from >= 0 && from < sizes_.batch, "there is no such sequence");
  KvSizes sizes = sizes_;
  sizes.batch = static_cast<int64_t>(sequences.size());
  return sizes;
}

}  // namespace tilepress
