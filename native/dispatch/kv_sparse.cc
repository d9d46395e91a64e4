#include "dispatch/kv_sparse.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "dispatch/registry.h"
#include "tilepress/convert.h"
#include "tilepress/kv.h"

namespace tilepress {
namespace {

constexpr uint16_t kMagnitude = 0x7fff;

size_t size(int64_t count) { return static_cast<size_t>(count); }

void require(bool condition, const std::string& message) {
  if (!condition) throw std::invalid_argument(message);
}

// The mask of a vector, and those of its values that are not zero to `to`, one after the other.
uint32_t compress(const uint16_t* vector, uint16_t*& to) {
  uint16_t kept[kSparseVector];
  int count = 0;
  uint32_t mask = 0;
  for (int i = 0; i < kSparseVector; ++i) {
    const bool keep = vector[i] & kMagnitude;
    kept[count] = vector[i];
    count += keep;
    mask |= static_cast<uint32_t>(keep) << i;
  }
  std::memcpy(to, kept, size(count) * 2);
  to += count;
  return mask;
}

void expand(uint32_t mask, const uint16_t*& from, uint16_t* vector) {
  for (int i = 0; i < kSparseVector; ++i) vector[i] = mask >> i & 1 ? *from++ : uint16_t{0};
}

}  // namespace

SparseKvCache::SparseKvCache(const SparseKvShape& shape, int64_t most)
    : GrowingKv(shape, kSparseLanes, "lanes"), type_(shape.type) {
  require(type_ != FloatType::f32, "a sparse cache holds halves");
  require_room(most, 2 * part_values() * 2);
  open_ = KvMemory(shape.batch * 2 * part_values() * 2);
  all_.assign(size(shape.channels), ~uint32_t{0});
  for (int64_t channel = 0; channel < shape.channels; ++channel) {
    const int64_t unit = channel / kSparseLanes * kSparseLanes * kSparseTokens;
    places_[0].push_back(sparse_place(0, channel));
    places_[1].push_back(unit + sparse_place(channel % kSparseLanes, 0));
  }
}

int64_t SparseKvCache::slot_bytes() const {
  const int64_t bytes = 4 * mask_count() + 8 * sizes_.heads + 2 * (room(0) + room(1));
  return (bytes + 63) / 64 * 64;
}

int64_t SparseKvCache::memory_bytes() const { return GrowingKv::memory_bytes() + open_.size() + 4 * sizes_.channels; }

SparseKvCache::Slot SparseKvCache::slot(int64_t sequence, int64_t block) const {
  const Chunk& chunk = chunk_of(block);
  uint8_t* at = chunk.memory.data() + (sequence * chunk.blocks + block - chunk.first) * slot_bytes();
  uint8_t *starts = at + 4 * mask_count(), *values = starts + 8 * sizes_.heads;
  return {reinterpret_cast<uint32_t*>(at), reinterpret_cast<uint32_t*>(starts), reinterpret_cast<uint16_t*>(values)};
}

uint16_t* SparseKvCache::open(int64_t sequence, int64_t head, int part) const {
  return open_.as<uint16_t>() + ((sequence * 2 + part) * sizes_.heads + head) * kSparseTokens * sizes_.channels;
}

SparseUnits SparseKvCache::units(int64_t sequence, int64_t head, int64_t block, int part, bool open) const {
  const int64_t count = part ? sizes_.channels / kSparseLanes : kSparseTokens / kSparseLanes;
  const int64_t depth = part ? kSparseTokens : sizes_.channels;
  if (open) return {all_.data(), this->open(sequence, head, part), type_, count, depth, 0};
  const Slot at = slot(sequence, block);
  const int64_t index = head * 2 + part;
  return {at.masks + index * sizes_.channels,        at.values + at.starts[index], type_, count, depth,
          is_last_of_chunk(block) ? 0 : slot_bytes()};
}

// A token of the open block: its channels lie at places_ from here. Units are of 16 tokens' keys, or channels' values.
uint16_t* SparseKvCache::open_token(int64_t sequence, int64_t head, int part, int64_t token) const {
  const int64_t unit = token / kSparseLanes * kSparseLanes * sizes_.channels;
  const int64_t of_key = unit + sparse_place(token % kSparseLanes, 0), of_value = sparse_place(0, token);
  return open(sequence, head, part) + (part ? of_value : of_key);
}

void SparseKvCache::append(int64_t sequence, int64_t head, int64_t token, const float* key, const float* value) {
  static thread_local std::vector<uint16_t> halves;
  halves.resize(size(sizes_.channels));
  for (int part = 0; part < 2; ++part) {
    const float* from = part ? value : key;
    if (type_ == FloatType::bf16) {
      std::transform(from, from + sizes_.channels, halves.begin(), float_to_bf16);
    } else {
      choose<ops::convert_f16_f32>()(from, nullptr, sizes_.channels, halves.data());
    }
    uint16_t* to = open_token(sequence, head, part, token % kSparseTokens);
    for (size_t i = 0; i < halves.size(); ++i) to[places_[part][i]] = halves[i];
  }
}

// The open block, which is full and thinned out, to its slot.
void SparseKvCache::close(int64_t sequence, int64_t block, int part) {
  const Slot to = slot(sequence, block);
  uint16_t *first = to.values + (part ? room(0) : 0), *next = first;
  for (int64_t head = 0; head < sizes_.heads; ++head) {
    const uint16_t* from = open(sequence, head, part);
    uint32_t* masks = to.masks + (head * 2 + part) * sizes_.channels;
    to.starts[head * 2 + part] = static_cast<uint32_t>(next - to.values);
    for (int64_t i = 0; i < sizes_.channels; ++i) masks[i] = compress(from + i * kSparseVector, next);
  }
}

// The smallest of a token's keys or values in the open block become zero, all heads taken together: of equals the
// first, in the order of heads and channels.
void SparseKvCache::thin_out(int64_t sequence, int part, int64_t token) {
  static thread_local std::vector<uint16_t> halves;
  const int64_t channels = sizes_.channels, drop = sizes_.token_drop(part);
  if (!drop) return;
  const auto& places = places_[part];
  halves.resize(size(sizes_.token_values()));
  for (int64_t head = 0; head < sizes_.heads; ++head) {
    const uint16_t* from = open_token(sequence, head, part, token);
    for (size_t i = 0; i < places.size(); ++i) halves[size(head * channels) + i] = from[places[i]];
  }
  drop_smallest(halves.data(), sizes_.token_values(), drop);
  for (int64_t head = 0; head < sizes_.heads; ++head) {
    uint16_t* to = open_token(sequence, head, part, token);
    for (size_t i = 0; i < places.size(); ++i) to[places[i]] = halves[size(head * channels) + i];
  }
}

// A slot's values back to the open block, as far as they were kept.
void SparseKvCache::reopen(int64_t sequence, int64_t block) {
  const Slot from = slot(sequence, block);
  for (int64_t index = 0; index < 2 * sizes_.heads; ++index) {
    const uint16_t* next = from.values + from.starts[index];
    uint16_t* to = open(sequence, index / 2, static_cast<int>(index % 2));
    const uint32_t* masks = from.masks + index * sizes_.channels;
    for (int64_t i = 0; i < sizes_.channels; ++i) expand(masks[i], next, to + i * kSparseVector);
  }
}

void SparseKvCache::shorten(int64_t sequence, int64_t length) {
  const int64_t block = length / kSparseTokens;
  if (length % kSparseTokens && block < this->length(sequence) / kSparseTokens) reopen(sequence, block);
}

}  // namespace tilepress
