// Where pages are: chunks, the ring of lows, sparse pages.
#include "dispatch/kv_bfp_store.h"

#include <cstring>

#include "dispatch/checks.h"

namespace tilepress {
namespace {

// Pages that the last `local` tokens can be in.
int64_t pages_touched(int64_t local) { return local ? (local + kKvPageTokens - 2) / kKvPageTokens + 1 : 0; }

}  // namespace

BfpKvStore::BfpKvStore(const BfpKvConfig& config, int64_t most) : KvStore(config, kKvGroup, "groups"), config_(config) {
  require(config.mantissa >= 1 && config.mantissa <= config.high && config.high <= 8, "magnitudes have 1 to 8 bits");
  require(config.initial >= 0 && config.local >= 0 && config.initial <= 1 << 20 && config.local <= 1 << 20,
          "tokens of more bits are 0 to 2^20");
  require(config.smoothed >= 0 && config.smoothed <= config.channels, "at most all channels have an offset");
  initial_pages_ = has_ring() ? pages_of(config.initial) : 0;
  ring_pages_ = has_ring() ? pages_touched(config.local) : 0;
  const int64_t all = config.batch * config.heads, page = all * kKvPageTokens * config.channels;
  require(initial_pages_ + ring_pages_ <= kMostTokens / all, "the cache is too large");
  const int64_t ring = (initial_pages_ + ring_pages_) * unit_count() * kKvUnitLows;
  require_room(most, config.heads * (ring + kKvPageTokens * config.channels * 2));
  sparse_.resize(size(config.batch));
  smooth_.assign(size(config.batch), config.smoothed == 0);
  ring_ = KvMemory(all * ring);
  open_values_ = KvMemory(page * 2);
  if (config.smoothed) {
    first_keys_ = KvMemory(page * 2);
    offsets_ = KvMemory(all * config.channels * 4);
  }
}

int64_t BfpKvStore::chunk_bytes(int64_t pages) const {
  const int64_t unit_bytes = kKvUnitCodes + kKvUnitExponents + (is_wide_everywhere() ? kKvUnitLows : 0);
  return sizes_.batch * sizes_.heads * pages * unit_count() * unit_bytes;
}

int64_t BfpKvStore::memory_bytes() const {
  int64_t total = KvStore::memory_bytes() + ring_.size() + open_values_.size() + first_keys_.size() + offsets_.size();
  for (const auto& pages : sparse_) {
    for (const auto& page : pages) total += page ? page->bytes() : 0;
  }
  return total;
}

int BfpKvStore::bits_of(int64_t token, int64_t length) const {
  return token < config_.initial || token >= length - config_.local ? config_.high : config_.mantissa;
}

uint8_t* BfpKvStore::ring_page(int64_t sequence, int64_t head, int64_t page) const {
  const int64_t index = page < initial_pages_ ? page : initial_pages_ + page % ring_pages_;
  const int64_t per_head = initial_pages_ + ring_pages_;
  return ring_.data() + (head_index(sequence, head) * per_head + index) * unit_count() * kKvUnitLows;
}

uint8_t* BfpKvStore::lows(const Chunk& chunk, int64_t sequence, int64_t head, int64_t page, int64_t length) const {
  if (is_wide_everywhere()) {
    const int64_t codes = sizes_.batch * sizes_.heads * chunk.pages * unit_count() * kKvUnitCodes;
    const int64_t before = head_index(sequence, head) * chunk.pages + page - chunk.first;
    return chunk.memory.data() + codes + before * unit_count() * kKvUnitLows;
  }
  const bool wide = page < initial_pages_ || (ring_pages_ && page >= first_wide(length));
  return wide ? ring_page(sequence, head, page) : nullptr;
}

uint8_t* BfpKvStore::former_lows(int64_t sequence, int64_t head, int64_t page, int64_t length) const {
  const bool taken = page < initial_pages_ || page + ring_pages_ <= (length - 1) / kKvPageTokens;
  return has_ring() && ring_pages_ && !taken && page < first_wide(length) ? ring_page(sequence, head, page) : nullptr;
}

KvUnits BfpKvStore::units(int64_t sequence, int64_t head, int64_t page, int64_t length, int part) const {
  if (is_sparse(sequence, page)) return expanded(sequence, head, page, part * unit_count() / 2, unit_count() / 2);
  const Chunk& chunk = chunk_of(page);
  const int64_t count = unit_count(), all = sizes_.batch * sizes_.heads * chunk.pages * count;
  const int64_t first = (head_index(sequence, head) * chunk.pages + page - chunk.first) * count;
  uint8_t* codes = chunk.memory.data();
  uint8_t* exponents = codes + all * (kKvUnitCodes + (is_wide_everywhere() ? kKvUnitLows : 0));
  uint8_t* low = lows(chunk, sequence, head, page, length);
  const KvUnits both = {codes + first * kKvUnitCodes, low, exponents + first * kKvUnitExponents};
  return both.unit(part * count / 2);
}

// Units of a sparse page, in memory that the thread's next call overwrites.
KvUnits BfpKvStore::expanded(int64_t sequence, int64_t head, int64_t page, int64_t first, int64_t count) const {
  static thread_local std::vector<uint8_t> codes, lows;
  codes.resize(size(unit_count() * kKvUnitCodes));
  lows.resize(size(unit_count() * kKvUnitLows));
  return sparse_[size(sequence)][size(page)]->expand(head, first, count, codes.data(), lows.data());
}

KvUnits BfpKvStore::whole_page(int64_t sequence, int64_t head, int64_t page) const {
  return is_sparse(sequence, page) ? expanded(sequence, head, page, 0, unit_count())
                                   : units(sequence, head, page, 0, 0);
}

// After a step: new lengths, final offsets, and memory released that no query needs any more.
void BfpKvStore::settle(const KvStep& step) {
  bool all_smooth = true;
  for (int64_t sequence = 0; sequence < sizes_.batch; ++sequence) {
    int64_t& length = lengths_[size(sequence)];
    for (int64_t i = 0; i < step.count; ++i) length += step.stores(sequence, i);
    if (length >= kKvPageTokens) smooth_[size(sequence)] = true;
    all_smooth = all_smooth && smooth_[size(sequence)];
  }
  if (all_smooth) first_keys_ = KvMemory();
  sparsify();
  release_unseen();
}

void BfpKvStore::take_offsets(const KvMemory& offsets) {
  offsets_ = offsets;
  smooth_[0] = true;
  first_keys_ = KvMemory();
}

// Chunks whose pages are immutable in all sequences become sparse, and their memory is released; not the initial pages,
// whose tokens have more bits.
void BfpKvStore::sparsify() {
  if (!is_sparse()) return;
  const int64_t end = settled_pages(shortest()) / kChunkPages * kChunkPages;
  for (int64_t sequence = 0; sequence < sizes_.batch; ++sequence) {
    auto& pages = sparse_[size(sequence)];
    for (auto page = std::max(static_cast<int64_t>(pages.size()), first_sparse()); page < end; ++page) {
      auto sparse = std::make_shared<SparseBfpPage>(sizes_.heads, unit_count(), is_wide_everywhere());
      for (int64_t head = 0; head < sizes_.heads; ++head) {
        sparse->add(units(sequence, head, page, length(sequence), 0));
      }
      sparse->finish();
      pages.resize(size(page));
      pages.push_back(std::move(sparse));
    }
  }
  for (Chunk& chunk : chunks_) {
    const bool replaced = chunk.first >= first_sparse() && chunk.first + chunk.pages <= end;
    if (replaced && chunk.memory.size()) chunk.memory = KvMemory();
  }
}

// Before a sequence is shortened to `length`: pages that will change again, and all after them, are put back in chunks.
void BfpKvStore::densify(int64_t sequence, int64_t length) {
  auto& pages = sparse_[size(sequence)];
  const int64_t first = std::max(settled_pages(length), first_sparse());
  const auto end = static_cast<int64_t>(pages.size());
  if (first >= end) return;
  for (Chunk& chunk : chunks_) {
    const bool needed = chunk.first + chunk.pages > first && !chunk.memory.size();
    if (needed) chunk.memory = KvMemory(chunk_bytes(chunk.pages));
  }
  const std::vector<std::shared_ptr<const SparseBfpPage>> old(pages.begin() + first, pages.end());
  pages.resize(size(first));
  for (int64_t page = first; page < std::min(end, pages_of(length)); ++page) {
    for (int64_t head = 0; head < sizes_.heads; ++head) {
      const KvUnits to = units(sequence, head, page, length, 0);
      const KvUnits from = old[size(page - first)]->expand(head, 0, unit_count(), to.codes, to.lows);
      std::copy(from.exponents, from.exponents + unit_count() * kKvUnitExponents, to.exponents);
    }
  }
}

}  // namespace tilepress
