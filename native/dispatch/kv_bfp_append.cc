// Tokens that come to a BFP store, and go when a sequence is shortened.
#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>

#include "dispatch/checks.h"
#include "dispatch/kv_bfp_store.h"
#include "dispatch/registry.h"
#include "tilepress/convert.h"

namespace tilepress {
namespace {

int slot_of(int64_t token) { return static_cast<int>(token % kKvPageTokens); }

// The 32 values of a lane.
void lane_values(const KvUnits& unit, int lane, int32_t* values) {
  for (int i = 0; i < kKvGroup; ++i) {
    const int row = i / 4, byte = (row & 3) * 64 + 4 * lane + i % 4, shift = row & 4;
    const int sign = unit.codes[256 + 4 * lane + i % 4] >> row & 1;
    values[i] = 16 * (unit.codes[byte] >> shift & 15) - 256 * sign + (unit.lows ? unit.lows[byte] >> shift & 15 : 0);
  }
}

int lane_exponent(const KvUnits& unit, int lane) {
  const uint8_t nibbles = unit.exponents[lane % 8], bits = unit.exponents[8 + lane / 8];
  return (nibbles >> (lane / 8 * 4) & 15) | (bits >> lane % 8 & 1) << 4;
}

// Exact: a value has at most eight bits, none below FP16's last.
uint16_t half_of(int value, int exponent) {
  const auto power = static_cast<uint32_t>(std::max(exponent, 1) - 22 + 127);
  return float_to_fp16(static_cast<float>(value) * std::bit_cast<float>(power << 23));
}

}  // namespace

// Zeroes units of a new page: a longer sequence may have used them, and the ring reuses its pages.
void BfpKvStore::begin_page(const KvUnits& units, int64_t count) {
  std::memset(units.codes, 0, size(count * kKvUnitCodes));
  std::memset(units.exponents, 0, size(count * kKvUnitExponents));
  if (units.lows) std::memset(units.lows, 0, size(count * kKvUnitLows));
}

// The token that is truncated when token number `length` comes; -1 if there is none, or no query sees it any more and
// it may have no memory.
int64_t BfpKvStore::leaving(int64_t length) const {
  const int64_t token = length - truncated_later();
  return truncated_later() && token >= std::max(config_.initial, first_seen(length)) ? token : -1;
}

void BfpKvStore::append_key(int64_t sequence, int64_t head, int64_t length, const float* key) {
  const int64_t old = leaving(length);
  if (old >= 0) {
    const KvUnits page = units(sequence, head, old / kKvPageTokens, length, 0);
    choose<ops::truncate_key_bfp>()(page, sizes_.channels, {slot_of(old), config_.mantissa, config_.nearest});
  }
  if (length % kKvPageTokens == 0) {
    begin_page(units(sequence, head, length / kKvPageTokens, length + 1, 0), unit_count() / 2);
  }
  const bool final_offsets = smooth_[size(sequence)] || length >= kKvPageTokens;
  final_offsets ? set_key(sequence, head, length, length + 1, key) : append_first_key(sequence, head, length, key);
}

// Rounds a token's key, less its offsets, in a head of `length` tokens.
void BfpKvStore::set_key(int64_t sequence, int64_t head, int64_t token, int64_t length, const float* key) {
  static thread_local std::vector<uint16_t> halves;
  halves.resize(size(sizes_.channels));
  choose<ops::convert_f16_f32>()(key, offsets(sequence, head), sizes_.channels, halves.data());
  const KvUnits page = units(sequence, head, token / kKvPageTokens, length, 0);
  const KvToken slot = {slot_of(token), bits_of(token, length), config_.nearest};
  choose<ops::quantize_key_bfp>()(page, sizes_.channels, slot, halves.data());
}

// Offsets change with each of the first tokens, and with them all keys before it.
void BfpKvStore::append_first_key(int64_t sequence, int64_t head, int64_t length, const float* key) {
  static thread_local std::vector<float> earlier;
  const int64_t channels = sizes_.channels;
  uint16_t* first = first_keys_.as<uint16_t>() + head_index(sequence, head) * kKvPageTokens * channels;
  choose<ops::convert_f16_f32>()(key, nullptr, channels, first + length * channels);
  set_offsets(first, length + 1, offsets(sequence, head));
  earlier.resize(size(channels));
  for (int64_t token = 0; token <= length; ++token, first += channels) {
    std::transform(first, first + channels, earlier.begin(), fp16_to_float);
    set_key(sequence, head, token, length + 1, earlier.data());
  }
}

// Half of the extreme of each channel with one of the largest, the first among equals; 0 elsewhere.
void BfpKvStore::set_offsets(const uint16_t* keys, int64_t count, float* offsets) const {
  const int64_t channels = sizes_.channels;
  std::vector<int64_t> order(size(channels));
  std::iota(order.begin(), order.end(), 0);
  for (int64_t i = 0; i < channels; ++i) {
    float extreme = fp16_to_float(keys[i]);
    for (int64_t token = 1; token < count; ++token) {
      const float value = fp16_to_float(keys[token * channels + i]);
      if (std::abs(value) > std::abs(extreme)) extreme = value;
    }
    offsets[i] = extreme / 2;
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return std::abs(offsets[a]) > std::abs(offsets[b]); });
  for (int64_t i = config_.smoothed; i < channels; ++i) offsets[order[size(i)]] = 0;
}

void BfpKvStore::append_value(int64_t sequence, int64_t head, int64_t length, const float* value,
                              const KvChannels& which) {
  const auto page_of = [&](int64_t token, int64_t tokens) {
    return which.of(units(sequence, head, token / kKvPageTokens, tokens, 1));
  };
  const int64_t old = leaving(length);
  if (old >= 0) {
    choose<ops::truncate_value_bfp>()(page_of(old, length), which.count,
                                      {slot_of(old), config_.mantissa, config_.nearest});
  }
  if (length % kKvPageTokens == 0) begin_page(page_of(length, length + 1), which.count / kKvLanes);
  uint16_t* halves = open_values(sequence, head) + slot_of(length) * sizes_.channels;
  choose<ops::convert_f16_f32>()(value + which.first, nullptr, which.count, halves + which.first);
  set_value(sequence, head, length, length + 1, which);
}

// Rounds a token of the last page of a head of `length` tokens, and those before it if an exponent rises.
void BfpKvStore::set_value(int64_t sequence, int64_t head, int64_t token, int64_t length, const KvChannels& which) {
  const int64_t first = token - slot_of(token);
  const KvOpenValues open = {open_values(sequence, head) + which.first,
                             token - first + 1,
                             sizes_.channels,
                             config_.initial - first,
                             length - config_.local - first,
                             config_.mantissa,
                             config_.high,
                             config_.nearest};
  const KvUnits page = which.of(units(sequence, head, first / kKvPageTokens, length, 1));
  choose<ops::quantize_value_bfp>()(page, which.count, open);
}

void BfpKvStore::shorten(int64_t sequence, int64_t length) {
  densify(sequence, length);
  for (int64_t head = 0; head < sizes_.heads; ++head) shorten_head(sequence, head, length);
  if (length || !config_.smoothed) return;
  smooth_[size(sequence)] = false;
  if (offsets_.is_shared()) offsets_ = offsets_.clone();
  if (!first_keys_.size()) first_keys_ = KvMemory(sizes_.batch * sizes_.heads * kKvPageTokens * sizes_.channels * 2);
}

// The last page of values goes on from its values as stored.
void BfpKvStore::shorten_head(int64_t sequence, int64_t head, int64_t length) {
  const int64_t before = lengths_[size(sequence)], last = (length - 1) / kKvPageTokens;
  if (!length) return;
  const bool is_open = (before - 1) / kKvPageTokens == last;
  if (length % kKvPageTokens && !is_open) reopen(sequence, head, length);
  // Pages that are among the last again have lost their lows: later pages overwrote them.
  for (int64_t page = std::max(first_wide(length), initial_pages_); ring_pages_ && page <= last; ++page) {
    if (page < first_wide(before)) std::memset(ring_page(sequence, head, page), 0, size(unit_count() * kKvUnitLows));
  }
  if (length % kKvPageTokens == 0) return;
  begin_page(units(sequence, head, last, length, 1), unit_count() / 2);
  for (int64_t token = last * kKvPageTokens; token < length; ++token) {
    set_value(sequence, head, token, length, {0, sizes_.channels});
  }
}

// Opens the page of token number `length`, which is full: FP16 values from those stored.
void BfpKvStore::reopen(int64_t sequence, int64_t head, int64_t length) {
  const int64_t channels = sizes_.channels;
  uint16_t* open = open_values(sequence, head);
  const KvUnits page = units(sequence, head, length / kKvPageTokens, lengths_[size(sequence)], 1);
  for (int64_t channel = 0; channel < channels; ++channel) {
    const KvUnits unit = page.unit(channel / kKvLanes);
    const int lane = static_cast<int>(channel % kKvLanes), shared = lane_exponent(unit, lane);
    int32_t stored[kKvGroup];
    lane_values(unit, lane, stored);
    for (int i = 0; i < length % kKvPageTokens; ++i) open[i * channels + channel] = half_of(stored[i], shared);
  }
}

}  // namespace tilepress
