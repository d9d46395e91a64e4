// A cache as arrays of bytes, and other caches of its sequences.
#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "dispatch/kv_cache.h"

namespace tilepress {
namespace {

size_t size(int64_t count) { return static_cast<size_t>(count); }

void require(bool condition, const std::string& message) {
  if (!condition) throw std::invalid_argument(message);
}

}  // namespace

// The first block that has memory, and how many there are from there on that hold tokens.
KvCache::Span KvCache::live() const {
  int64_t longest = 0, first = 0;
  for (int64_t length : lengths_) longest = std::max(longest, length);
  for (const Chunk& chunk : chunks_) first += chunk.memory.size() || shape_.thin ? 0 : chunk.blocks;
  return {first, std::max<int64_t>((longest + kKvTokens - 1) / kKvTokens - first, 0)};
}

std::vector<std::pair<std::string, int64_t>> KvCache::part_sizes() const {
  const int64_t all = shape_.batch * shape_.heads, units = all * live().blocks * unit_count();
  std::vector<std::pair<std::string, int64_t>> sizes = {{"codes", units * kKvUnitCodes},
                                                        {"exponents", units * kKvUnitExponents},
                                                        {"open_values", open_values_.size()},
                                                        {"smooth", shape_.batch}};
  if (is_wide_everywhere()) sizes.push_back({"lows", units * kKvUnitLows});
  if (ring_.size()) sizes.push_back({"ring", ring_.size()});
  if (first_keys_.size()) sizes.push_back({"first_keys", first_keys_.size()});
  if (offsets_.size()) sizes.push_back({"offsets", offsets_.size()});
  return sizes;
}

// Copies a part of the state into bytes, or back; `bytes` has the size that part_sizes says.
void KvCache::move_part(const std::string& part, uint8_t* bytes, bool save) {
  const auto move = [save](uint8_t* mine, uint8_t* theirs, int64_t count) {
    if (count) save ? std::memcpy(theirs, mine, size(count)) : std::memcpy(mine, theirs, size(count));
  };
  if (part == "ring") return move(ring_.data(), bytes, ring_.size());
  if (part == "open_values") return move(open_values_.data(), bytes, open_values_.size());
  if (part == "first_keys") return move(first_keys_.data(), bytes, first_keys_.size());
  if (part == "offsets") return move(offsets_.data(), bytes, offsets_.size());
  if (part == "smooth") return move(smooth_.data(), bytes, shape_.batch);
  const Span span = live();
  for (int64_t sequence = 0; sequence < shape_.batch; ++sequence) {
    for (int64_t head = 0; head < shape_.heads; ++head) {
      for (int64_t block = span.first; block < span.first + span.blocks; ++block) {
        const KvUnits all = whole(sequence, head, block);
        const int64_t of_unit = part == "codes" ? kKvUnitCodes : part == "lows" ? kKvUnitLows : kKvUnitExponents;
        uint8_t* mine = part == "codes" ? all.codes : part == "lows" ? all.lows : all.exponents;
        move(mine, bytes, unit_count() * of_unit);
        bytes += unit_count() * of_unit;
      }
    }
  }
}

std::vector<std::pair<std::string, std::vector<uint8_t>>> KvCache::save() const {
  std::vector<std::pair<std::string, std::vector<uint8_t>>> parts;
  auto& mine = const_cast<KvCache&>(*this);  // which saving leaves alone
  for (const auto& [name, bytes] : part_sizes()) {
    parts.emplace_back(name, std::vector<uint8_t>(size(bytes)));
    mine.move_part(name, parts.back().second.data(), true);
  }
  return parts;
}

std::unique_ptr<KvCache> KvCache::load(const KvShape& shape, const std::vector<int64_t>& lengths,
                                       std::vector<std::pair<std::string, std::vector<uint8_t>>> parts) {
  auto cache = std::make_unique<KvCache>(shape);
  require(static_cast<int64_t>(lengths.size()) == shape.batch, "there is not one length for each sequence");
  int64_t longest = 0, shortest = kMostTokens;
  for (int64_t length : lengths) {
    require(length >= 0 && length <= kMostTokens, "a sequence cannot have " + std::to_string(length) + " tokens");
    longest = std::max(longest, length);
    shortest = std::min(shortest, length);
  }
  // Nothing is allocated for tokens whose codes are not there; blocks that no query sees any more may be missing.
  const int64_t of_block = shape.batch * shape.heads * cache->unit_count() * kKvUnitCodes;
  const auto codes = std::find_if(parts.begin(), parts.end(), [](const auto& part) { return part.first == "codes"; });
  require(codes != parts.end(), "there is no array codes");
  const auto bytes = static_cast<int64_t>(codes->second.size());
  const int64_t blocks = bytes / of_block, first = (longest + kKvTokens - 1) / kKvTokens - blocks;
  require(bytes % of_block == 0 && first >= 0 && first <= cache->first_live_block(shortest) && first % 2 == 0,
          "codes have " + std::to_string(bytes) + " bytes, which are not the blocks of such sequences");
  cache->lengths_ = lengths;
  cache->allocate(first, blocks);
  bool smooth = true;
  for (const auto& [name, flags] : parts) {
    if (name == "smooth") smooth = std::find(flags.begin(), flags.end(), 0) == flags.end();
  }
  if (smooth) cache->first_keys_ = KvMemory();
  cache->take(std::move(parts));
  cache->thin_out();
  return cache;
}

void KvCache::take(std::vector<std::pair<std::string, std::vector<uint8_t>>> parts) {
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
  for (int64_t sequence = 0; sequence < shape_.batch; ++sequence) {
    const bool early = length(sequence) < kKvTokens && shape_.smoothed;
    require(early || smooth_[size(sequence)] == 1, "a sequence of so many tokens has final offsets");
    require(smooth_[size(sequence)] <= 1, "offsets are final or not");
  }
}

std::unique_ptr<KvCache> KvCache::select(const std::vector<int64_t>& sequences) const {
  KvShape shape = shape_;
  shape.batch = static_cast<int64_t>(sequences.size());
  for (int64_t from : sequences) require(from >= 0 && from < shape_.batch, "there is no such sequence");
  auto chosen = std::make_unique<KvCache>(shape);
  const Span span = live();
  chosen->lengths_.clear();
  for (int64_t from : sequences) chosen->lengths_.push_back(lengths_[size(from)]);
  chosen->allocate(span.first, span.blocks);
  if (!first_keys_.size()) chosen->first_keys_ = KvMemory();
  for (int64_t to = 0; to < shape.batch; ++to) chosen->copy_sequence(to, *this, sequences[size(to)]);
  chosen->thin_out();
  return chosen;
}

void KvCache::copy_sequence(int64_t to, const KvCache& other, int64_t from) {
  const auto copy = [&](KvMemory& mine, const KvMemory& theirs) {
    const int64_t bytes = mine.size() / shape_.batch;
    if (bytes) std::memcpy(mine.data() + to * bytes, theirs.data() + from * bytes, size(bytes));
  };
  copy(ring_, other.ring_);
  copy(open_values_, other.open_values_);
  copy(first_keys_, other.first_keys_);
  copy(offsets_, other.offsets_);
  smooth_[size(to)] = other.smooth_[size(from)];
  const Span span = other.live();
  for (int64_t head = 0; head < shape_.heads; ++head) {
    for (int64_t block = span.first; block < span.first + span.blocks; ++block) {
      const KvUnits mine = keys(to, head, block, 0), theirs = other.whole(from, head, block);
      std::memcpy(mine.codes, theirs.codes, size(unit_count() * kKvUnitCodes));
      std::memcpy(mine.exponents, theirs.exponents, size(unit_count() * kKvUnitExponents));
      if (is_wide_everywhere()) std::memcpy(mine.lows, theirs.lows, size(unit_count() * kKvUnitLows));
    }
  }
}

}  // namespace tilepress
