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
bool all_finite(const uint16_t* halves, int64_t count, Real type) {
  const int infinite = type == Real::bf16 ? 0x7f80 : 0x7c00;
  bool bad = false;
  for (int64_t i = 0; i < count; ++i) bad |= (halves[i] & infinite) == infinite;
  return !bad;
}

}  // namespace

// The first block that has memory, and how many there are from there on that are full in any sequence.
SparseKvCache::Span SparseKvCache::live() const {
  int64_t first = 0;
  for (const Chunk& chunk : chunks_) first += chunk.memory.size() ? 0 : chunk.blocks;
  return {first, std::max<int64_t>(full_blocks() - first, 0)};
}

std::vector<std::pair<std::string, int64_t>> SparseKvCache::part_sizes() const {
  const int64_t slots = shape_.batch * live().blocks;
  return {{"masks", slots * 4 * mask_count()},
          {"values", slots * 2 * (room(0) + room(1))},
          {"open", static_cast<int64_t>(open_.size())}};
}

// Copies a part of the state into bytes, or back; `bytes` has the size that part_sizes says.
void SparseKvCache::move_part(const std::string& part, uint8_t* bytes, bool save) {
  const auto move = [save](void* mine, uint8_t* theirs, int64_t count) {
    if (count) save ? std::memcpy(theirs, mine, size(count)) : std::memcpy(mine, theirs, size(count));
  };
  if (part == "open") return move(open_.data(), bytes, open_.size());
  const Span span = live();
  const int64_t count = part == "masks" ? 4 * mask_count() : 2 * (room(0) + room(1));
  for (int64_t sequence = 0; sequence < shape_.batch; ++sequence) {
    for (int64_t block = span.first; block < span.first + span.blocks; ++block, bytes += count) {
      const Slot at = slot(sequence, block);
      part == "masks" ? move(at.masks, bytes, count) : move(at.values, bytes, count);
    }
  }
}

std::vector<std::pair<std::string, std::vector<uint8_t>>> SparseKvCache::save() const {
  std::vector<std::pair<std::string, std::vector<uint8_t>>> parts;
  auto& mine = const_cast<SparseKvCache&>(*this);  // which saving leaves alone
  for (const auto& [name, bytes] : part_sizes()) {
    parts.emplace_back(name, std::vector<uint8_t>(size(bytes)));
    mine.move_part(name, parts.back().second.data(), true);
  }
  return parts;
}

std::unique_ptr<SparseKvCache> SparseKvCache::load(const SparseKvShape& shape, const std::vector<int64_t>& lengths,
                                                   std::vector<std::pair<std::string, std::vector<uint8_t>>> parts) {
  auto cache = std::make_unique<SparseKvCache>(shape);
  require(static_cast<int64_t>(lengths.size()) == shape.batch, "there is not one length for each sequence");
  for (int64_t length : lengths) {
    require(length >= 0 && length <= kMostTokens, "a sequence cannot have " + std::to_string(length) + " tokens");
  }
  // Nothing is allocated for blocks whose masks are not there; those that no query sees any more may be missing.
  const auto masks = std::find_if(parts.begin(), parts.end(), [](const auto& part) { return part.first == "masks"; });
  require(masks != parts.end(), "there is no array masks");
  cache->lengths_ = lengths;
  const int64_t of_block = shape.batch * 4 * cache->mask_count(), bytes = static_cast<int64_t>(masks->second.size());
  const int64_t shortest = *std::min_element(lengths.begin(), lengths.end());
  const int64_t blocks = bytes / of_block, first = cache->full_blocks() - blocks;
  require(bytes % of_block == 0 && first >= 0 && first <= cache->first_live_block(shortest) && first % 2 == 0,
          "masks have " + std::to_string(bytes) + " bytes, which are not the blocks of such sequences");
  cache->allocate(first, blocks);
  cache->take(std::move(parts));
  return cache;
}

void SparseKvCache::take(std::vector<std::pair<std::string, std::vector<uint8_t>>> parts) {
  const auto sizes = part_sizes();
  require(parts.size() == sizes.size(),
          "there are " + std::to_string(parts.size()) + " arrays, not " + std::to_string(sizes.size()));
  for (const auto& [name, bytes] : sizes) {
    auto found = std::find_if(parts.begin(), parts.end(), [&](const auto& part) { return part.first == name; });
    require(found != parts.end(), "there is no array " + name);
    require(static_cast<int64_t>(found->second.size()) == bytes,
            name + " has " + std::to_string(found->second.size()) + " bytes, not " + std::to_string(bytes));
    move_part(name, found->second.data(), false);
  }
  require(all_finite(open_.as<uint16_t>(), open_.size() / 2, shape_.type), "open has values that are not finite");
  const int64_t first = live().first;
  for (int64_t sequence = 0; sequence < shape_.batch; ++sequence) {
    for (int64_t block = first; block < length(sequence) / kSparseTokens; ++block) set_starts(sequence, block);
  }
}

// Finds where the values of each head begin, from its masks, which must not ask for more than there are.
void SparseKvCache::set_starts(int64_t sequence, int64_t block) {
  const Slot at = slot(sequence, block);
  for (int part = 0; part < 2; ++part) {
    int64_t next = part ? room(0) : 0;
    for (int64_t head = 0; head < shape_.heads; ++head) {
      const uint32_t* masks = at.masks + (head * 2 + part) * shape_.channels;
      at.starts[head * 2 + part] = static_cast<uint32_t>(next);
      for (int64_t i = 0; i < shape_.channels; ++i) next += std::popcount(masks[i]);
    }
    require(next <= room(0) + (part ? room(1) : 0), "masks ask for more values than a block has");
  }
  require(all_finite(at.values, room(0) + room(1), shape_.type), "values are not finite");
}

std::unique_ptr<SparseKvCache> SparseKvCache::select(const std::vector<int64_t>& sequences) const {
  SparseKvShape shape = shape_;
  shape.batch = static_cast<int64_t>(sequences.size());
  for (int64_t from : sequences) require(from >= 0 && from < shape_.batch, "there is no such sequence");
  auto chosen = std::make_unique<SparseKvCache>(shape);
  for (int64_t to = 0; to < shape.batch; ++to) chosen->lengths_[size(to)] = lengths_[size(sequences[size(to)])];
  const Span span = live();
  chosen->allocate(span.first, span.blocks);
  for (int64_t to = 0; to < shape.batch; ++to) chosen->copy_sequence(to, *this, sequences[size(to)]);
  return chosen;
}

void SparseKvCache::copy_sequence(int64_t to, const SparseKvCache& other, int64_t from) {
  std::memcpy(open(to, 0, 0), other.open(from, 0, 0), size(2 * part_values() * 2));
  const Span span = other.live();
  for (int64_t block = span.first; block < span.first + span.blocks; ++block) {
    std::memcpy(slot(to, block).masks, other.slot(from, block).masks, size(slot_bytes()));
  }
}

}  // namespace tilepress
