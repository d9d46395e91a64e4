#include "dispatch/kv_bfp_slab.h"

#include <cstring>

#include "dispatch/checks.h"
#include "dispatch/registry.h"

namespace tilepress {
namespace {

constexpr int64_t kMostBytes = 1 << 24;

int64_t whole_lines(int64_t bytes) { return (bytes + kVectorBytes - 1) / kVectorBytes * kVectorBytes; }

// One version of a page.
int64_t version_bytes(const BfpKvStore& store) {
  return whole_lines(store.unit_count() * (kKvUnitCodes + kKvUnitLows + kKvUnitExponents));
}

int64_t bytes_of_page(const BfpKvStore& store) {
  const int64_t versions = store.truncated_later() > 0 ? 2 : 1;
  return versions * version_bytes(store) + whole_lines(kKvPageTokens * store.sizes().channels * 2);
}

// The calling thread keeps the memory for its next call.
KvMemory& own_memory(int64_t bytes) {
  static thread_local KvMemory memory;
  if (memory.size() < bytes) memory = KvMemory(bytes);
  return memory;
}

void copy_units(const ConstKvUnits& from, int64_t count, const KvUnits& to) {
  std::memcpy(to.codes, from.codes, size(count * kKvUnitCodes));
  std::memcpy(to.exponents, from.exponents, size(count * kKvUnitExponents));
  if (!to.lows) return;
  if (from.lows) {
    std::memcpy(to.lows, from.lows, size(count * kKvUnitLows));
  } else {
    std::memset(to.lows, 0, size(count * kKvUnitLows));
  }
}

}  // namespace

BfpSlab::BfpSlab(const BfpKvStore& store, const KvStep& step, int64_t first, int64_t count)
    : store(store),
      step(step),
      first(first),
      count(count),
      unit_bytes_(version_bytes(store)),
      page_bytes_(bytes_of_page(store)),
      memory_(own_memory(0)) {
  for (int64_t sequence = 0; sequence < store.sizes().batch; ++sequence) {
    const int64_t length = before(sequence), seen = store.first_seen(length + 1) / kKvPageTokens;
    first_pages_.push_back(std::max(store.settled_pages(length), seen));
    pages_ = std::max(pages_, end_page(sequence) - first_page(sequence));
  }
  own_memory(store.sizes().batch * store.sizes().heads * pages_ * page_bytes_);
}

int64_t BfpSlab::most_tokens(const BfpKvStore& store) {
  const int64_t pages = kMostBytes / (store.sizes().batch * store.sizes().heads * bytes_of_page(store));
  return std::max<int64_t>(pages, 1) * kKvPageTokens;
}

uint8_t* BfpSlab::memory(int64_t head, int64_t page) const {
  const int64_t index = head * pages_ + page - first_page(head / store.sizes().heads);
  return memory_.data() + index * page_bytes_;
}

KvUnits BfpSlab::whole(uint8_t* from, bool lows) const {
  uint8_t* low = from + store.unit_count() * kKvUnitCodes;
  return {from, lows ? low : nullptr, low + store.unit_count() * kKvUnitLows};
}

KvUnits BfpSlab::wide(int64_t head, int64_t page, int part) const {
  return whole(memory(head, page), store.config().high > 4).unit(part * store.unit_count() / 2);
}

KvUnits BfpSlab::narrow(int64_t head, int64_t page, int part) const {
  return whole(memory(head, page) + unit_bytes_, narrow_has_lows(page)).unit(part * store.unit_count() / 2);
}

bool BfpSlab::narrow_has_lows(int64_t page) const {
  const BfpKvConfig& config = store.config();
  return config.mantissa > 4 || (config.high > 4 && page * kKvPageTokens < config.initial);
}

uint16_t* BfpSlab::halves(int64_t head, int64_t page) const {
  return reinterpret_cast<uint16_t*>(memory(head, page) + (has_narrow() ? 2 : 1) * unit_bytes_);
}

KvOpenValues BfpSlab::open_values(int64_t head, int64_t page, int64_t count, int64_t begin, int64_t end) const {
  const BfpKvConfig& config = store.config();
  return {halves(head, page), count, config.channels, begin, end, config.mantissa, config.high, config.nearest};
}

BfpSlab::Place BfpSlab::place(int64_t head, int64_t page) const {
  const int64_t sequence = head / store.sizes().heads, from = page * kKvPageTokens;
  const int64_t begin = std::max(from, before(sequence)), end = std::min(from + kKvPageTokens, after(sequence));
  return {head, sequence, head % store.sizes().heads, page, from, begin, std::max(begin, end)};
}

void BfpSlab::fill(int64_t head, int64_t page) {
  const Place place = this->place(head, page);
  if (page >= end_page(place.sequence)) return;
  take_stored(place);
  if (place.begin < place.end) set_keys(place);
  if (has_narrow()) {
    const KvUnits to = whole(memory(head, page) + unit_bytes_, true);
    copy_units(wide(head, page, 0), store.unit_count(), to);
    truncate(to, place, after(place.sequence));
  }
  if (place.begin < place.end) set_values(place);
}

// What the store has of the page.
void BfpSlab::take_stored(const Place& place) const {
  const int64_t stored = before(place.sequence), channels = store.sizes().channels;
  const KvUnits to = wide(place.head, place.page, 0);
  if (stored <= place.first) {
    std::memset(to.codes, 0, size(unit_bytes_));
    return;
  }
  copy_units(store.units(place.sequence, place.kv_head, place.page, stored, 0), store.unit_count(), to);
  if (place.begin == place.end) return;
  std::memcpy(halves(place.head, place.page), store.open_values(place.sequence, place.kv_head),
              size((stored - place.first) * channels * 2));
}

void BfpSlab::set_keys(const Place& place) const {
  static thread_local std::vector<uint16_t> key;
  const int64_t channels = store.sizes().channels;
  const float* offsets = store.offsets(place.sequence, place.kv_head);
  const KvUnits to = wide(place.head, place.page, 0);
  const float* from = step.keys + (place.head * step.count + first) * channels;
  key.resize(size(channels));
  for (int64_t token = place.begin; token < place.end; ++token) {
    choose<ops::convert_f16_f32>()(from + (token - before(place.sequence)) * channels, offsets, channels, key.data());
    const KvToken slot = {static_cast<int>(token - place.first), store.bits_of(token, token + 1),
                          store.config().nearest};
    choose<ops::quantize_key_bfp>()(to, channels, slot, key.data());
  }
}

void BfpSlab::set_values(const Place& place) const {
  const int64_t channels = store.sizes().channels, filled = place.end - place.first;
  const int64_t initial = store.config().initial - place.first;
  const float* from = step.values + (place.head * step.count + first) * channels;
  for (int64_t token = place.begin; token < place.end; ++token) {
    choose<ops::convert_f16_f32>()(from + (token - before(place.sequence)) * channels, nullptr, channels,
                                   halves(place.head, place.page) + (token - place.first) * channels);
  }
  const auto set = [&](const KvUnits& to, int64_t begin, int64_t end) {
    KvOpenValues open = open_values(place.head, place.page, filled, begin, end);
    open.all = true;
    choose<ops::quantize_value_bfp>()(to, channels, open);
  };
  set(wide(place.head, place.page, 1), initial, has_narrow() ? initial : kKvPageTokens);
  if (has_narrow()) set(narrow(place.head, place.page, 1), initial, kKvPageTokens);
}

// Tokens before `end` that are not initial ones.
void BfpSlab::truncate(const KvUnits& page, const Place& place, int64_t end) const {
  const BfpKvConfig& config = store.config();
  const KvUnits values = page.unit(store.unit_count() / 2);
  const int64_t last = std::min(end, place.first + kKvPageTokens);
  for (int64_t token = std::max(place.first, config.initial); token < last; ++token) {
    const KvToken slot = {static_cast<int>(token - place.first), config.mantissa, config.nearest};
    choose<ops::truncate_key_bfp>()(page, config.channels, slot);
    choose<ops::truncate_value_bfp>()(values, config.channels, slot);
  }
}

// The page as it is after the slab's last token.
void BfpSlab::commit(int64_t head, int64_t page) const {
  const Place place = this->place(head, page);
  const int64_t length = after(place.sequence);
  if (page >= end_page(place.sequence)) return;
  const KvUnits to = store.units(place.sequence, place.kv_head, page, length, 0);
  const int64_t wide_from = length - store.truncated_later();  // tokens before it are truncated
  const bool is_narrow = has_narrow() && std::min(place.first + kKvPageTokens, length) <= wide_from;
  copy_units(is_narrow ? narrow(head, page, 0) : wide(head, page, 0), store.unit_count(), to);
  if (has_narrow() && !is_narrow) truncate(to, place, wide_from);
  if (uint8_t* lows = store.former_lows(place.sequence, place.kv_head, page, length)) {
    std::memset(lows, 0, size(store.unit_count() * kKvUnitLows));
  }
  if (page == end_page(place.sequence) - 1 && place.begin < place.end) commit_open_values(place);
}

// Those of the last page, and behind them, where token by token leaves them too, those of the page before.
void BfpSlab::commit_open_values(const Place& place) const {
  const int64_t channels = store.sizes().channels, filled = place.end - place.first;
  uint16_t* to = store.open_values(place.sequence, place.kv_head);
  if (place.page > first_page(place.sequence) && place.first > before(place.sequence)) {
    std::memcpy(to + filled * channels, halves(place.head, place.page - 1) + filled * channels,
                size((kKvPageTokens - filled) * channels * 2));
  }
  std::memcpy(to, halves(place.head, place.page), size(filled * channels * 2));
}

}  // namespace tilepress
