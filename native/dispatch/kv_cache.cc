#include "dispatch/kv_cache.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>
#include <stdexcept>

#include "dispatch/registry.h"
#include "tilepress/convert.h"

namespace tilepress {
namespace {

size_t size(int64_t count) { return static_cast<size_t>(count); }

void require(bool condition, const std::string& message) {
  if (!condition) throw std::invalid_argument(message);
}

int place_of(int64_t token) { return static_cast<int>(token % kKvTokens); }

// All 32 values of a lane, the exponent that they share, and the number that one stands for, exactly: it has at most
// eight bits, none below FP16's last.
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

uint16_t half_of(int value, int exponent) {
  const auto power = static_cast<uint32_t>(std::max(exponent, 1) - 22 + 127);
  return float_to_fp16(static_cast<float>(value) * std::bit_cast<float>(power << 23));
}

// Blocks that the last `local` tokens can lie in.
int64_t blocks_touched(int64_t local) { return local ? (local + kKvTokens - 2) / kKvTokens + 1 : 0; }

}  // namespace

KvCache::KvCache(const KvShape& shape, int64_t most) : GrowingKv(shape, kKvGroup, "groups"), shape_(shape) {
  require(shape.mantissa >= 1 && shape.mantissa <= shape.high && shape.high <= 8, "magnitudes have 1 to 8 bits");
  require(shape.initial >= 0 && shape.local >= 0 && shape.initial <= 1 << 20 && shape.local <= 1 << 20,
          "tokens of more bits are 0 to 2^20");
  require(shape.smoothed >= 0 && shape.smoothed <= shape.channels, "at most all channels have an offset");
  initial_blocks_ = has_ring() ? blocks_of(shape.initial) : 0;
  ring_blocks_ = has_ring() ? blocks_touched(shape.local) : 0;
  const int64_t all = shape.batch * shape.heads, group = all * kKvTokens * shape.channels;
  require(initial_blocks_ + ring_blocks_ <= kMostTokens / all, "the cache is too large");
  const int64_t ring = (initial_blocks_ + ring_blocks_) * unit_count() * kKvUnitLows;
  require_room(most, shape.heads * (ring + kKvTokens * shape.channels * 2));
  thin_.resize(size(shape.batch));
  smooth_.assign(size(shape.batch), shape.smoothed == 0);
  ring_ = KvMemory(all * ring);
  open_values_ = KvMemory(group * 2);
  if (shape.smoothed) {
    first_keys_ = KvMemory(group * 2);
    offsets_ = KvMemory(all * shape.channels * 4);
  }
}

int64_t KvCache::chunk_bytes(int64_t blocks) const {
  const int64_t of_unit = kKvUnitCodes + kKvUnitExponents + (is_wide_everywhere() ? kKvUnitLows : 0);
  return sizes_.batch * sizes_.heads * blocks * unit_count() * of_unit;
}

int64_t KvCache::memory_bytes() const {
  int64_t total = GrowingKv::memory_bytes() + ring_.size() + open_values_.size() + first_keys_.size() + offsets_.size();
  for (const auto& blocks : thin_) {
    for (const ThinBlock& block : blocks) total += block.bytes();
  }
  return total;
}

int KvCache::bits_of(int64_t token, int64_t length) const {
  return token < shape_.initial || token >= length - shape_.local ? shape_.high : shape_.mantissa;
}

uint8_t* KvCache::ring_place(int64_t sequence, int64_t head, int64_t block) const {
  const int64_t place = block < initial_blocks_ ? block : initial_blocks_ + block % ring_blocks_;
  const int64_t places = initial_blocks_ + ring_blocks_;
  return ring_.data() + (head_index(sequence, head) * places + place) * unit_count() * kKvUnitLows;
}

uint8_t* KvCache::lows(const Chunk& chunk, int64_t sequence, int64_t head, int64_t block, int64_t length) const {
  if (is_wide_everywhere()) {
    const int64_t codes = sizes_.batch * sizes_.heads * chunk.blocks * unit_count() * kKvUnitCodes;
    const int64_t before = head_index(sequence, head) * chunk.blocks + block - chunk.first;
    return chunk.memory.data() + codes + before * unit_count() * kKvUnitLows;
  }
  const bool wide = block < initial_blocks_ || (ring_blocks_ && block >= first_wide(length));
  return wide ? ring_place(sequence, head, block) : nullptr;
}

KvUnits KvCache::units(int64_t sequence, int64_t head, int64_t block, int64_t length, int part) const {
  if (is_thin(sequence, block)) return expanded(sequence, head, block, part * unit_count() / 2, unit_count() / 2);
  const Chunk& chunk = chunk_of(block);
  const int64_t count = unit_count(), all = sizes_.batch * sizes_.heads * chunk.blocks * count;
  const int64_t at = (head_index(sequence, head) * chunk.blocks + block - chunk.first) * count;
  uint8_t* codes = chunk.memory.data();
  uint8_t* exponents = codes + all * (kKvUnitCodes + (is_wide_everywhere() ? kKvUnitLows : 0));
  uint8_t* low = lows(chunk, sequence, head, block, length);
  const KvUnits both = {codes + at * kKvUnitCodes, low, exponents + at * kKvUnitExponents};
  return both.unit(part * count / 2);
}

// After a step: the new lengths, final offsets, and memory given back that no query will see or need any more.
void KvCache::settle(const KvStep& step) {
  bool all_smooth = true;
  for (int64_t sequence = 0; sequence < sizes_.batch; ++sequence) {
    int64_t& length = lengths_[size(sequence)];
    for (int64_t i = 0; i < step.count; ++i) length += step.keeps(sequence, i);
    if (length >= kKvTokens) smooth_[size(sequence)] = true;
    all_smooth = all_smooth && smooth_[size(sequence)];
  }
  if (all_smooth) first_keys_ = KvMemory();
  thin_out();
  release_unseen();
}

// Zeroes units of the block of the token after `length`: it may hold what a longer sequence left, and its place in the
// ring does.
void KvCache::begin_block(const KvUnits& units, int64_t count) {
  std::memset(units.codes, 0, size(count * kKvUnitCodes));
  std::memset(units.exponents, 0, size(count * kKvUnitExponents));
  if (units.lows) std::memset(units.lows, 0, size(count * kKvUnitLows));
}

// The token that is cut to the bits that most have when another comes after `length`; -1 where none is, or where nobody
// sees it any more: then it may have no memory.
int64_t KvCache::leaving(int64_t length) const {
  const int64_t token = length - changing_tokens();
  return changing_tokens() && token >= std::max(shape_.initial, first_seen(length)) ? token : -1;
}

void KvCache::append_key(int64_t sequence, int64_t head, int64_t length, const float* key) {
  static thread_local std::vector<uint16_t> halves;
  static thread_local std::vector<float> earlier;
  const int64_t channels = sizes_.channels, index = head_index(sequence, head), cut = leaving(length);
  if (cut >= 0) {
    const KvUnits units = keys(sequence, head, cut / kKvTokens, length);
    choose<ops::truncate_key_bfp>()(units, channels, {place_of(cut), shape_.mantissa});
  }
  if (length % kKvTokens == 0) begin_block(keys(sequence, head, length / kKvTokens, length + 1), unit_count() / 2);
  halves.resize(size(channels));
  float* offsets = shape_.smoothed ? offsets_.as<float>() + index * channels : nullptr;
  KernelOf<ops::convert_f16_f32> const round = choose<ops::convert_f16_f32>();
  const auto set = [&](int64_t token, const float* from) {
    round(from, offsets, channels, halves.data());
    const KvUnits units = keys(sequence, head, token / kKvTokens, length + 1);
    choose<ops::quantize_key_bfp>()(units, channels, {place_of(token), bits_of(token, length + 1)}, halves.data());
  };
  if (smooth_[size(sequence)] || length >= kKvTokens) return set(length, key);
  // Offsets change with every one of the first tokens, and with them all that came before.
  uint16_t* first = first_keys_.as<uint16_t>() + index * kKvTokens * channels;
  round(key, nullptr, channels, first + length * channels);
  find_offsets(first, length + 1, offsets);
  earlier.resize(size(channels));
  for (int64_t token = 0; token <= length; ++token, first += channels) {
    std::transform(first, first + channels, earlier.begin(), fp16_to_float);
    set(token, earlier.data());
  }
}

// Half of the extremes of the channels with the largest, the first of equals; 0 elsewhere.
void KvCache::find_offsets(const uint16_t* keys, int64_t count, float* offsets) const {
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
  for (int64_t i = shape_.smoothed; i < channels; ++i) offsets[order[size(i)]] = 0;
}

void KvCache::append_value(int64_t sequence, int64_t head, int64_t length, const float* value,
                           const KvChannels& which) {
  const int64_t cut = leaving(length);
  if (cut >= 0) {
    const KvUnits units = which.of(values(sequence, head, cut / kKvTokens, length));
    choose<ops::truncate_value_bfp>()(units, which.count, {place_of(cut), shape_.mantissa});
  }
  if (length % kKvTokens == 0) {
    begin_block(which.of(values(sequence, head, length / kKvTokens, length + 1)), which.count / kKvLanes);
  }
  uint16_t* halves = open_values(sequence, head) + place_of(length) * sizes_.channels;
  choose<ops::convert_f16_f32>()(value + which.first, nullptr, which.count, halves + which.first);
  set_value(sequence, head, length, length + 1, which);
}

// Rounds a token of the last group of a head that has `length`, and those before it where they no longer fit.
void KvCache::set_value(int64_t sequence, int64_t head, int64_t token, int64_t length, const KvChannels& which) {
  const int64_t first = token - place_of(token);
  const KvOpenValues open = {open_values(sequence, head) + which.first,
                             token - first + 1,
                             sizes_.channels,
                             shape_.initial - first,
                             length - shape_.local - first,
                             shape_.mantissa,
                             shape_.high};
  choose<ops::quantize_value_bfp>()(which.of(values(sequence, head, first / kKvTokens, length)), which.count, open);
}

void KvCache::shorten(int64_t sequence, int64_t length) {
  thicken(sequence, length);
  for (int64_t head = 0; head < sizes_.heads; ++head) shorten_head(sequence, head, length);
  if (length || !shape_.smoothed) return;
  smooth_[size(sequence)] = false;
  if (!first_keys_.size()) first_keys_ = KvMemory(sizes_.batch * sizes_.heads * kKvTokens * sizes_.channels * 2);
}

// The last group of values goes on from what was kept of it.
void KvCache::shorten_head(int64_t sequence, int64_t head, int64_t length) {
  const int64_t before = lengths_[size(sequence)], last = (length - 1) / kKvTokens;
  if (!length) return;
  const bool is_open = (before - 1) / kKvTokens == last;
  if (length % kKvTokens && !is_open) reopen(sequence, head, length);
  // Blocks that the last tokens lie in again have no lows any more: others took their places.
  for (int64_t block = std::max(first_wide(length), initial_blocks_); ring_blocks_ && block <= last; ++block) {
    if (block < first_wide(before)) std::memset(ring_place(sequence, head, block), 0, size(unit_count() * kKvUnitLows));
  }
  if (length % kKvTokens == 0) return;
  begin_block(values(sequence, head, last, length), unit_count() / 2);
  for (int64_t token = last * kKvTokens; token < length; ++token) {
    set_value(sequence, head, token, length, {0, sizes_.channels});
  }
}

// Takes the last group of a sequence of `length` tokens, which is full, for open: FP16 values from what was kept.
void KvCache::reopen(int64_t sequence, int64_t head, int64_t length) {
  const int64_t channels = sizes_.channels;
  uint16_t* open = open_values(sequence, head);
  const KvUnits all = values(sequence, head, length / kKvTokens, lengths_[size(sequence)]);
  for (int64_t channel = 0; channel < channels; ++channel) {
    const KvUnits unit = all.unit(channel / kKvLanes);
    const int lane = static_cast<int>(channel % kKvLanes), shared = lane_exponent(unit, lane);
    int32_t kept[kKvGroup];
    lane_values(unit, lane, kept);
    for (int i = 0; i < length % kKvTokens; ++i) open[i * channels + channel] = half_of(kept[i], shared);
  }
}

}  // namespace tilepress
