// A sparse store as arrays of bytes, and stores of some of its sequences.
#include <algorithm>
#include <bit>
#include <cstring>

#include "dispatch/checks.h"
#include "dispatch/kv_sparse_store.h"

namespace tilepress {
namespace {

// Infinities and NaN have all exponent bits set.
bool all_finite(const uint16_t* halves, int64_t count, FloatType type) {
  const int infinite = type == FloatType::bf16 ? 0x7f80 : 0x7c00;
  bool bad = false;
  for (int64_t i = 0; i < count; ++i) bad |= (halves[i] & infinite) == infinite;
  return !bad;
}

}  // namespace

std::vector<std::pair<std::string, int64_t>> SparseKvStore::array_sizes() const {
  const int64_t pages = sizes_.batch * live_pages().pages;
  return {{"masks", pages * 4 * mask_count()},
          {"values", pages * 2 * (closed_size(0) + closed_size(1))},
          {"open", static_cast<int64_t>(open_.size())}};
}

void SparseKvStore::copy_array(const std::string& name, uint8_t* bytes, bool save) {
  const auto copy = [save](void* mine, uint8_t* theirs, int64_t count) {
    if (count) save ? std::memcpy(theirs, mine, size(count)) : std::memcpy(mine, theirs, size(count));
  };
  if (name == "open") return copy(open_.data(), bytes, open_.size());
  const Span live = live_pages();
  const int64_t count = name == "masks" ? 4 * mask_count() : 2 * (closed_size(0) + closed_size(1));
  for (int64_t sequence = 0; sequence < sizes_.batch; ++sequence) {
    for (int64_t page = live.first; page < live.end(); ++page, bytes += count) {
      const Page closed = closed_page(sequence, page);
      name == "masks" ? copy(closed.masks, bytes, count) : copy(closed.values, bytes, count);
    }
  }
}

std::unique_ptr<SparseKvStore> SparseKvStore::load(const SparseKvConfig& config, const std::vector<int64_t>& lengths,
                                                   const KvArrays& arrays) {
  auto store = std::make_unique<SparseKvStore>(config, total_bytes(arrays));
  store->take_lengths(lengths, arrays, "masks", config.batch * 4 * store->mask_count());
  store->take_arrays(arrays);
  require(all_finite(store->open_.as<uint16_t>(), store->open_.size() / 2, config.type),
          "open has values that are not finite");
  const int64_t first = store->live_pages().first;
  for (int64_t sequence = 0; sequence < config.batch; ++sequence) {
    const int64_t full = store->length(sequence) / kSparseTokens;
    for (int64_t page = first; page < full; ++page) store->set_starts(sequence, page);
  }
  return store;
}

// Computes the starts of a page from its masks, which must not have more bits than there are values.
void SparseKvStore::set_starts(int64_t sequence, int64_t page) {
  const Page closed = closed_page(sequence, page);
  for (int part = 0; part < 2; ++part) {
    int64_t next = part ? closed_size(0) : 0;
    for (int64_t head = 0; head < sizes_.heads; ++head) {
      const uint32_t* masks = closed.masks + (head * 2 + part) * sizes_.channels;
      closed.starts[head * 2 + part] = static_cast<uint32_t>(next);
      for (int64_t i = 0; i < sizes_.channels; ++i) next += std::popcount(masks[i]);
    }
    require(next <= closed_size(0) + (part ? closed_size(1) : 0), "masks ask for more values than a block has");
  }
  require(all_finite(closed.values, closed_size(0) + closed_size(1), type_), "values are not finite");
}

std::unique_ptr<KvStore> SparseKvStore::copy_of(const std::vector<int64_t>& sequences, bool in_blocks) const {
  auto chosen = std::make_unique<SparseKvStore>(SparseKvConfig{sizes_of(sequences, in_blocks), type_});
  chosen->take_lengths(*this, sequences);
  for (int64_t to = 0; to < chosen->sizes_.batch; ++to) chosen->copy_sequence(to, *this, sequences[size(to)]);
  return chosen;
}

std::unique_ptr<KvStore> SparseKvStore::twin() const {
  auto twin = std::make_unique<SparseKvStore>(SparseKvConfig{sizes_, type_});
  twin->open_ = open_.clone();
  return twin;
}

void SparseKvStore::copy_sequence(int64_t to, const SparseKvStore& other, int64_t from) {
  std::memcpy(open_page(to, 0, 0), other.open_page(from, 0, 0), size(2 * open_size() * 2));
  const Span live = other.live_pages();
  for (int64_t page = live.first; page < live.end(); ++page) {
    std::memcpy(closed_page(to, page).masks, other.closed_page(from, page).masks, size(page_bytes()));
  }
}

}  // namespace tilepress
