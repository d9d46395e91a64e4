// A BFP store as arrays of bytes, and stores of some of its sequences.
#include <algorithm>
#include <cstring>

#include "dispatch/checks.h"
#include "dispatch/kv_bfp_store.h"

namespace tilepress {

std::vector<std::pair<std::string, int64_t>> BfpKvStore::array_sizes() const {
  const int64_t all = sizes_.batch * sizes_.heads, units = all * live_pages().pages * unit_count();
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

void BfpKvStore::copy_array(const std::string& name, uint8_t* bytes, bool save) {
  const auto copy = [save](uint8_t* mine, uint8_t* theirs, int64_t count) {
    if (count) save ? std::memcpy(theirs, mine, size(count)) : std::memcpy(mine, theirs, size(count));
  };
  if (name == "ring") return copy(ring_.data(), bytes, ring_.size());
  if (name == "open_values") return copy(open_values_.data(), bytes, open_values_.size());
  if (name == "first_keys") return copy(first_keys_.data(), bytes, first_keys_.size());
  if (name == "offsets") return copy(offsets_.data(), bytes, offsets_.size());
  if (name == "smooth") return copy(smooth_.data(), bytes, sizes_.batch);
  const Span live = live_pages();
  const int64_t unit_bytes = name == "codes" ? kKvUnitCodes : name == "lows" ? kKvUnitLows : kKvUnitExponents;
  for (int64_t sequence = 0; sequence < sizes_.batch; ++sequence) {
    for (int64_t head = 0; head < sizes_.heads; ++head) {
      for (int64_t page = live.first; page < live.end(); ++page, bytes += unit_count() * unit_bytes) {
        const KvUnits all = whole_page(sequence, head, page);
        uint8_t* mine = name == "codes" ? all.codes : name == "lows" ? all.lows : all.exponents;
        copy(mine, bytes, unit_count() * unit_bytes);
      }
    }
  }
}

std::unique_ptr<BfpKvStore> BfpKvStore::load(const BfpKvConfig& config, const std::vector<int64_t>& lengths,
                                             const KvArrays& arrays) {
  auto store = std::make_unique<BfpKvStore>(config, total_bytes(arrays));
  store->take_lengths(lengths, arrays, "codes", config.batch * config.heads * store->unit_count() * kKvUnitCodes);
  bool smooth = true;
  for (const auto& [name, flags] : arrays) {
    if (name == "smooth") smooth = std::find(flags.begin(), flags.end(), 0) == flags.end();
  }
  if (smooth) store->first_keys_ = KvMemory();
  store->take_arrays(arrays);
  for (int64_t sequence = 0; sequence < config.batch; ++sequence) {
    const bool early = store->length(sequence) < kKvPageTokens && config.smoothed;
    require(early || store->smooth_[size(sequence)] == 1, "a sequence of so many tokens has final offsets");
    require(store->smooth_[size(sequence)] <= 1, "offsets are final or not");
  }
  store->sparsify();
  return store;
}

std::unique_ptr<KvStore> BfpKvStore::copy_of(const std::vector<int64_t>& sequences, bool in_blocks) const {
  BfpKvConfig config = config_;
  static_cast<KvSizes&>(config) = sizes_of(sequences, in_blocks);
  auto chosen = std::make_unique<BfpKvStore>(config);
  chosen->take_lengths(*this, sequences);
  if (!first_keys_.size()) chosen->first_keys_ = KvMemory();
  for (int64_t to = 0; to < config.batch; ++to) chosen->copy_sequence(to, *this, sequences[size(to)]);
  chosen->sparsify();
  return chosen;
}

std::unique_ptr<KvStore> BfpKvStore::twin() const {
  auto twin = std::make_unique<BfpKvStore>(config_);
  twin->smooth_ = smooth_;
  twin->sparse_ = sparse_;
  twin->ring_ = ring_.clone();
  twin->open_values_ = open_values_.clone();
  twin->first_keys_ = first_keys_.clone();
  twin->offsets_ = offsets_.clone();
  return twin;
}

void BfpKvStore::copy_sequence(int64_t to, const BfpKvStore& other, int64_t from) {
  const auto copy = [&](KvMemory& mine, const KvMemory& theirs) {
    const int64_t bytes = mine.size() / sizes_.batch;
    if (bytes) std::memcpy(mine.data() + to * bytes, theirs.data() + from * bytes, size(bytes));
  };
  copy(ring_, other.ring_);
  copy(open_values_, other.open_values_);
  copy(first_keys_, other.first_keys_);
  copy(offsets_, other.offsets_);
  smooth_[size(to)] = other.smooth_[size(from)];
  const Span live = other.live_pages();
  for (int64_t head = 0; head < sizes_.heads; ++head) {
    for (int64_t page = live.first; page < live.end(); ++page) {
      const KvUnits mine = units(to, head, page, 0, 0), theirs = other.whole_page(from, head, page);
      std::memcpy(mine.codes, theirs.codes, size(unit_count() * kKvUnitCodes));
      std::memcpy(mine.exponents, theirs.exponents, size(unit_count() * kKvUnitExponents));
      if (is_wide_everywhere()) std::memcpy(mine.lows, theirs.lows, size(unit_count() * kKvUnitLows));
    }
  }
}

}  // namespace tilepress
