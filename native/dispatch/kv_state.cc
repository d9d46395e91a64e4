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

std::vector<std::pair<std::string, int64_t>> KvCache::part_sizes() const {
  const int64_t all = sizes_.batch * sizes_.heads, units = all * live().blocks * unit_count();
  std::vector<std::pair<std::string, int64_t>> sizes = {{"codes", units * kKvUnitCodes},
                                                        {"exponents", units * kKvUnitExponents},
                                                        {"open_values", open_values_.size()},
                                                        {"smooth", sizes_.batch}};
  if (is_wide_everywhere()) sizes.push_back({"lows", units * kKvUnitLows});
  if (ring_.size()) sizes.push_back({"ring", ring_.size()});
  if (first_keys_.size()) sizes.push_back({"first_keys", first_keys_.size()});
  if (offsets_.size()) sizes.push_back({"offsets", offsets_.size()});
  return sizes;
}

void KvCache::move_part(const std::string& part, uint8_t* bytes, bool save) {
  const auto move = [save](uint8_t* mine, uint8_t* theirs, int64_t count) {
    if (count) save ? std::memcpy(theirs, mine, size(count)) : std::memcpy(mine, theirs, size(count));
  };
  if (part == "ring") return move(ring_.data(), bytes, ring_.size());
  if (part == "open_values") return move(open_values_.data(), bytes, open_values_.size());
  if (part == "first_keys") return move(first_keys_.data(), bytes, first_keys_.size());
  if (part == "offsets") return move(offsets_.data(), bytes, offsets_.size());
  if (part == "smooth") return move(smooth_.data(), bytes, sizes_.batch);
  const Span k_panel = live();
  for (int64_t sequence = 0; sequence < sizes_.batch; ++sequence) {
    for (int64_t head = 0; head < sizes_.heads; ++head) {
      for (int64_t block = k_panel.first; block < k_panel.first + k_panel.blocks; ++block) {
        const KvUnits all = whole(sequence, head, block);
        const int64_t of_unit = part == "codes" ? kKvUnitCodes : part == "lows" ? kKvUnitLows : kKvUnitExponents;
        uint8_t* mine = part == "codes" ? all.codes : part == "lows" ? all.lows : all.exponents;
        move(mine, bytes, unit_count() * of_unit);
        bytes += unit_count() * of_unit;
      }
    }
  }
}

std::unique_ptr<KvCache> KvCache::load(const KvShape& shape, const std::vector<int64_t>& lengths,
                                       const KvParts& parts) {
  auto cache = std::make_unique<KvCache>(shape, total_bytes(parts));
  cache->take_lengths(lengths, parts, "codes", shape.batch * shape.heads * cache->unit_count() * kKvUnitCodes);
  bool smooth = true;
  for (const auto& [name, flags] : parts) {
    if (name == "smooth") smooth = std::find(flags.begin(), flags.end(), 0) == flags.end();
  }
  if (smooth) cache->first_keys_ = KvMemory();
  cache->take_parts(parts);
  for (int64_t sequence = 0; sequence < shape.batch; ++sequence) {
    const bool early = cache->length(sequence) < kKvTokens && shape.smoothed;
    require(early || cache->smooth_[size(sequence)] == 1, "a sequence of so many tokens has final offsets");
    require(cache->smooth_[size(sequence)] <= 1, "offsets are final or not");
  }
  cache->thin_out();
  return cache;
}

std::unique_ptr<GrowingKv> KvCache::copy_of(const std::vector<int64_t>& sequences) const {
  KvShape shape = shape_;
  static_cast<KvSizes&>(shape) = sizes_of(sequences);
  auto chosen = std::make_unique<KvCache>(shape);
  chosen->take_lengths(*this, sequences);
  if (!first_keys_.size()) chosen->first_keys_ = KvMemory();
  for (int64_t to = 0; to < shape.batch; ++to) chosen->copy_sequence(to, *this, sequences[size(to)]);
  chosen->thin_out();
  return chosen;
}

void KvCache::copy_sequence(int64_t to, const KvCache& other, int64_t from) {
  const auto copy = [&](KvMemory& mine, const KvMemory& theirs) {
    const int64_t bytes = mine.size() / sizes_.batch;
    if (bytes) std::memcpy(mine.data() + to * bytes, theirs.data() + from * bytes, size(bytes));
  };
  copy(ring_, other.ring_);
  copy(open_values_, other.open_values_);
  copy(first_keys_, other.first_keys_);
  copy(offsets_, other.offsets_);
  smooth_[size(to)] = other.smooth_[size(from)];
  const Span k_panel = other.live();
  for (int64_t head = 0; head < sizes_.heads; ++head) {
    for (int64_t block = k_panel.first; block < k_panel.first + k_panel.blocks; ++block) {
      const KvUnits mine = keys(to, head, block, 0), theirs = other.whole(from, head, block);
      std::memcpy(mine.codes, theirs.codes, size(unit_count() * kKvUnitCodes));
      std::memcpy(mine.exponents, theirs.exponents, size(unit_count() * kKvUnitExponents));
      if (is_wide_everywhere()) std::memcpy(mine.lows, theirs.lows, size(unit_count() * kKvUnitLows));
    }
  }
}

}  // namespace tilepress
