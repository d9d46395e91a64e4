// A sparse cache as arrays of bytes, and other caches of its sequences.
#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "dispatch/kv_sparse.h"

namespace tilepress {
namespace {

size_t size(int64_t count) { return static_cast<size_t>(count); }

void require(bool condition, const std::string& message) {
  if (!condition) throw std::invalid_argument(message);
}

// Exponents of all ones are infinities and NaN.
bool all_finite(const uint16_t* halves, int64_t count, FloatType type) {
  const int infinite = type == FloatType::bf16 ? 0x7f80 : 0x7c00;
  bool bad = false;
  for (int64_t i = 0; i < count; ++i) bad |= (halves[i] & infinite) == infinite;
  return !bad;
}

}  // namespace

std::vector<std::pair<std::string, int64_t>> SparseKvCache::part_sizes() const {
  const int64_t slots = sizes_.batch * live().blocks;
  return {{"masks", slots * 4 * mask_count()},
          {"values", slots * 2 * (room(0) + room(1))},
          {"open", static_cast<int64_t>(open_.size())}};
}

void SparseKvCache::move_part(const std::string& part, uint8_t* bytes, bool save) {
  const auto move = [save](void* mine, uint8_t* theirs, int64_t count) {
    if (count) save ? std::memcpy(theirs, mine, size(count)) : std::memcpy(mine, theirs, size(count));
  };
  if (part == "open") return move(open_.data(), bytes, open_.size());
  const Span k_panel = live();
  const int64_t count = part == "masks" ? 4 * mask_count() : 2 * (room(0) + room(1));
  for (int64_t sequence = 0; sequence < sizes_.batch; ++sequence) {
    for (int64_t block = k_panel.first; block < k_panel.first + k_panel.blocks; ++block, bytes += count) {
      const Slot at = slot(sequence, block);
      part == "masks" ? move(at.masks, bytes, count) : move(at.values, bytes, count);
    }
  }
}

std::unique_ptr<SparseKvCache> SparseKvCache::load(const SparseKvShape& shape, const std::vector<int64_t>& lengths,
                                                   const KvParts& parts) {
  auto cache = std::make_unique<SparseKvCache>(shape, total_bytes(parts));
  cache->take_lengths(lengths, parts, "masks", shape.batch * 4 * cache->mask_count());
  cache->take_parts(parts);
  require(all_finite(cache->open_.as<uint16_t>(), cache->open_.size() / 2, shape.type),
          "open has values that are not finite");
  const int64_t first = cache->live().first;
  for (int64_t sequence = 0; sequence < shape.batch; ++sequence) {
    const int64_t full = cache->length(sequence) / kSparseTokens;
    for (int64_t block = first; block < full; ++block) cache->set_starts(sequence, block);
  }
  return cache;
}

// Finds where the values of each head begin, from its masks, which must not ask for more than there are.
void SparseKvCache::set_starts(int64_t sequence, int64_t block) {
  const Slot at = slot(sequence, block);
  for (int part = 0; part < 2; ++part) {
    int64_t next = part ? room(0) : 0;
    for (int64_t head = 0; head < sizes_.heads; ++head) {
      const uint32_t* masks = at.masks + (head * 2 + part) * sizes_.channels;
      at.starts[head * 2 + part] = static_cast<uint32_t>(next);
      for (int64_t i = 0; i < sizes_.channels; ++i) next += std::popcount(masks[i]);
    }
    require(next <= room(0) + (part ? room(1) : 0), "masks ask for more values than a block has");
  }
  require(all_finite(at.values, room(0) + room(1), type_), "values are not finite");
}

std::unique_ptr<GrowingKv> SparseKvCache::copy_of(const std::vector<int64_t>& sequences) const {
  auto chosen = std::make_unique<SparseKvCache>(SparseKvShape{sizes_of(sequences), type_});
  chosen->take_lengths(*this, sequences);
  for (int64_t to = 0; to < chosen->sizes_.batch; ++to) chosen->copy_sequence(to, *this, sequences[size(to)]);
  return chosen;
}

void SparseKvCache::copy_sequence(int64_t to, const SparseKvCache& other, int64_t from) {
  std::memcpy(open(to, 0, 0), other.open(from, 0, 0), size(2 * part_values() * 2));
  const Span k_panel = other.live();
  for (int64_t block = k_panel.first; block < k_panel.first + k_panel.blocks; ++block) {
    std::memcpy(slot(to, block).masks, other.slot(from, block).masks, size(slot_bytes()));
  }
}

}  // namespace tilepress
