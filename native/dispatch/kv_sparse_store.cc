#include "dispatch/kv_sparse_store.h"

#include <algorithm>
#include <cstring>

#include "dispatch/checks.h"
#include "dispatch/kv_pruning.h"
#include "dispatch/registry.h"
#include "tilepress/convert.h"

namespace tilepress {
namespace {

constexpr uint16_t kMagnitude = 0x7fff;

// Appends the non-zeros of a vector to `to`; returns its mask.
uint32_t compress(const uint16_t* vector, uint16_t*& to) {
  uint16_t nonzeros[kSparseVector];
  int count = 0;
  uint32_t mask = 0;
  for (int i = 0; i < kSparseVector; ++i) {
    const bool nonzero = vector[i] & kMagnitude;
    nonzeros[count] = vector[i];
    count += nonzero;
    mask |= static_cast<uint32_t>(nonzero) << i;
  }
  std::memcpy(to, nonzeros, size(count) * 2);
  to += count;
  return mask;
}

void expand(uint32_t mask, const uint16_t*& from, uint16_t* vector) {
  for (int i = 0; i < kSparseVector; ++i) vector[i] = mask >> i & 1 ? *from++ : uint16_t{0};
}

}  // namespace

SparseKvStore::SparseKvStore(const SparseKvConfig& config, int64_t most)
    : KvStore(config, kSparseLanes, "lanes"), type_(config.type) {
  require(type_ != FloatType::f32, "a sparse cache holds halves");
  require_room(most, 2 * open_size() * 2);
  open_ = KvMemory(config.batch * 2 * open_size() * 2);
  full_masks_.assign(size(config.channels), ~uint32_t{0});
  for (int64_t channel = 0; channel < config.channels; ++channel) {
    const int64_t unit = channel / kSparseLanes * kSparseLanes * kSparseTokens;
    channel_offsets_[0].push_back(sparse_offset(0, channel));
    channel_offsets_[1].push_back(unit + sparse_offset(channel % kSparseLanes, 0));
  }
}

int64_t SparseKvStore::page_bytes() const {
  const int64_t bytes = 4 * mask_count() + 8 * sizes_.heads + 2 * (closed_size(0) + closed_size(1));
  return (bytes + 63) / 64 * 64;
}

int64_t SparseKvStore::memory_bytes() const { return KvStore::memory_bytes() + open_.size() + 4 * sizes_.channels; }

SparseKvStore::Page SparseKvStore::closed_page(int64_t sequence, int64_t page) const {
  const Chunk& chunk = chunk_of(page);
  uint8_t* masks = chunk.memory.data() + (sequence * chunk.pages + page - chunk.first) * page_bytes();
  uint8_t *starts = masks + 4 * mask_count(), *values = starts + 8 * sizes_.heads;
  return {reinterpret_cast<uint32_t*>(masks), reinterpret_cast<uint32_t*>(starts), reinterpret_cast<uint16_t*>(values)};
}

uint16_t* SparseKvStore::open_page(int64_t sequence, int64_t head, int part) const {
  return open_.as<uint16_t>() + ((sequence * 2 + part) * sizes_.heads + head) * kSparseTokens * sizes_.channels;
}

SparseUnits SparseKvStore::units(int64_t sequence, int64_t head, int64_t page, int part, bool open) const {
  const int64_t count = part ? sizes_.channels / kSparseLanes : kSparseTokens / kSparseLanes;
  const int64_t depth = part ? kSparseTokens : sizes_.channels;
  if (open) return {full_masks_.data(), open_page(sequence, head, part), type_, count, depth, 0};
  const Page closed = closed_page(sequence, page);
  const int64_t index = head * 2 + part, ahead = is_last_of_chunk(page) ? 0 : page_bytes();
  return {closed.masks + index * sizes_.channels, closed.values + closed.starts[index], type_, count, depth, ahead};
}

// A slot of the open page; its channels are at channel_offsets_ from here. Units are of 16 tokens' keys, or of 16
// channels' values.
uint16_t* SparseKvStore::open_slot(int64_t sequence, int64_t head, int part, int64_t slot) const {
  const int64_t unit = slot / kSparseLanes * kSparseLanes * sizes_.channels;
  const int64_t of_key = unit + sparse_offset(slot % kSparseLanes, 0), of_value = sparse_offset(0, slot);
  return open_page(sequence, head, part) + (part ? of_value : of_key);
}

void SparseKvStore::append(int64_t sequence, int64_t head, int64_t token, const float* key, const float* value) {
  static thread_local std::vector<uint16_t> halves;
  halves.resize(size(sizes_.channels));
  for (int part = 0; part < 2; ++part) {
    const float* from = part ? value : key;
    if (type_ == FloatType::bf16) {
      std::transform(from, from + sizes_.channels, halves.begin(), float_to_bf16);
    } else {
      choose<ops::convert_f16_f32>()(from, nullptr, sizes_.channels, halves.data());
    }
    uint16_t* to = open_slot(sequence, head, part, token % kSparseTokens);
    for (size_t i = 0; i < halves.size(); ++i) to[channel_offsets_[part][i]] = halves[i];
  }
}

// Stores the open page, which is full and pruned.
void SparseKvStore::close(int64_t sequence, int64_t page, int part) {
  const Page to = closed_page(sequence, page);
  uint16_t* next = to.values + (part ? closed_size(0) : 0);
  for (int64_t head = 0; head < sizes_.heads; ++head) {
    const uint16_t* from = open_page(sequence, head, part);
    uint32_t* masks = to.masks + (head * 2 + part) * sizes_.channels;
    to.starts[head * 2 + part] = static_cast<uint32_t>(next - to.values);
    for (int64_t i = 0; i < sizes_.channels; ++i) masks[i] = compress(from + i * kSparseVector, next);
  }
}

// Sets the smallest keys or values of a slot of the open page to zero, all heads taken together; among equals the
// first, in the order of heads and channels.
void SparseKvStore::prune(int64_t sequence, int part, int64_t slot) {
  static thread_local std::vector<uint16_t> halves;
  const int64_t channels = sizes_.channels, drop = sizes_.token_drop(part);
  if (!drop) return;
  const auto& offsets = channel_offsets_[part];
  halves.resize(size(sizes_.token_values()));
  for (int64_t head = 0; head < sizes_.heads; ++head) {
    const uint16_t* from = open_slot(sequence, head, part, slot);
    for (size_t i = 0; i < offsets.size(); ++i) halves[size(head * channels) + i] = from[offsets[i]];
  }
  drop_smallest(halves.data(), sizes_.token_values(), drop);
  for (int64_t head = 0; head < sizes_.heads; ++head) {
    uint16_t* to = open_slot(sequence, head, part, slot);
    for (size_t i = 0; i < offsets.size(); ++i) to[offsets[i]] = halves[size(head * channels) + i];
  }
}

// Expands a closed page to the open one; pruned values are zeros.
void SparseKvStore::reopen(int64_t sequence, int64_t page) {
  const Page from = closed_page(sequence, page);
  for (int64_t index = 0; index < 2 * sizes_.heads; ++index) {
    const uint16_t* next = from.values + from.starts[index];
    uint16_t* to = open_page(sequence, index / 2, static_cast<int>(index % 2));
    const uint32_t* masks = from.masks + index * sizes_.channels;
    for (int64_t i = 0; i < sizes_.channels; ++i) expand(masks[i], next, to + i * kSparseVector);
  }
}

void SparseKvStore::shorten(int64_t sequence, int64_t length) {
  const int64_t page = length / kSparseTokens;
  if (length % kSparseTokens && page < this->length(sequence) / kSparseTokens) reopen(sequence, page);
}

}  // namespace tilepress
