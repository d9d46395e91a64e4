#include "dispatch/kv_sparse.h"

#include <cstring>
#include <stdexcept>

namespace tilepress {
namespace {

constexpr int64_t kChunkBlocks = 2;  // how far a sequence grows at a time, and so the most that is not in use
constexpr uint16_t kMagnitude = 0x7fff;

size_t size(int64_t count) { return static_cast<size_t>(count); }

void require(bool condition, const std::string& message) {
  if (!condition) throw std::invalid_argument(message);
}

// Of so many halves: below `magnitude` all are dropped, and the first `equals` of those that have it.
struct Limit {
  int magnitude;
  int64_t equals;
};

// For the smallest `drop` of `count`, which are more: by the upper eight of fifteen bits, then by the others.
Limit find_limit(const uint16_t* halves, int64_t count, int64_t drop) {
  int64_t upper[256] = {}, lower[128] = {};
  for (int64_t i = 0; i < count; ++i) ++upper[halves[i] >> 7 & 255];
  int high = 0, low = 0;
  while (drop >= upper[high]) drop -= upper[high++];
  for (int64_t i = 0; i < count; ++i) lower[halves[i] & 127] += (halves[i] >> 7 & 255) == high;
  while (drop >= lower[low]) drop -= lower[low++];
  return {high << 7 | low, drop};
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

SparseKvCache::SparseKvCache(const SparseKvShape& shape) : shape_(shape) {
  require(shape.batch >= 1 && shape.heads >= 1 && shape.batch <= 1 << 20 && shape.heads <= 1 << 16,
          "a cache has at least one sequence and one head");
  require(shape.channels >= kSparseLanes && shape.channels % kSparseLanes == 0 && shape.channels <= 1 << 16,
          "heads of " + std::to_string(shape.channels) + " channels cannot be cut in lanes of 16");
  require(shape.type != Real::f32, "a sparse cache holds halves");
  require(shape.key_drop >= 0 && shape.key_drop < 100 && shape.value_drop >= 0 && shape.value_drop < 100,
          "0 to 99 % of keys and values are left out");
  require(shape.window >= 0, "a window has tokens");
  require(part_values() <= 1 << 30, "the cache is too large");
  lengths_.assign(size(shape.batch), 0);
  open_ = KvMemory(shape.batch * 2 * part_values() * 2);
  all_.assign(size(shape.channels), ~uint32_t{0});
}

int64_t SparseKvCache::token_drop(int part) const {
  return shape_.heads * shape_.channels * (part ? shape_.value_drop : shape_.key_drop) / 100;
}

int64_t SparseKvCache::room(int part) const { return part_values() - kSparseTokens * token_drop(part); }

int64_t SparseKvCache::slot_bytes() const {
  const int64_t bytes = 4 * mask_count() + 8 * shape_.heads + 2 * (room(0) + room(1));
  return (bytes + 63) / 64 * 64;
}

int64_t SparseKvCache::allocated() const {
  int64_t total = open_.size() + 4 * shape_.channels;
  for (const Chunk& chunk : chunks_) total += chunk.memory.size();
  return total;
}

SparseKvCache::Slot SparseKvCache::slot(int64_t sequence, int64_t block) const {
  const Chunk& chunk = chunks_[chunk_of_[size(block)]];
  uint8_t* at = chunk.memory.data() + (sequence * chunk.blocks + block - chunk.first) * slot_bytes();
  uint8_t *starts = at + 4 * mask_count(), *values = starts + 8 * shape_.heads;
  return {reinterpret_cast<uint32_t*>(at), reinterpret_cast<uint32_t*>(starts), reinterpret_cast<uint16_t*>(values)};
}

uint16_t* SparseKvCache::open(int64_t sequence, int64_t head, int part) const {
  return open_.as<uint16_t>() + ((sequence * 2 + part) * shape_.heads + head) * kSparseTokens * shape_.channels;
}

SparseUnits SparseKvCache::units(int64_t sequence, int64_t head, int64_t block, int part, bool open) const {
  const int64_t count = part ? shape_.channels / kSparseLanes : kSparseTokens / kSparseLanes;
  const int64_t depth = part ? kSparseTokens : shape_.channels;
  if (open) return {all_.data(), this->open(sequence, head, part), shape_.type, count, depth, 0};
  const Slot at = slot(sequence, block);
  const int64_t index = head * 2 + part;
  const bool last =
      static_cast<size_t>(block + 1) == chunk_of_.size() || chunk_of_[size(block)] != chunk_of_[size(block + 1)];
  return {at.masks + index * shape_.channels,
          at.values + at.starts[index],
          shape_.type,
          count,
          depth,
          last ? 0 : slot_bytes()};
}

int64_t SparseKvCache::place(int part, int64_t token, int64_t channel) const {
  const int64_t along = part ? channel : token, depth = part ? token : channel;
  const int64_t of_unit = kSparseLanes * (part ? kSparseTokens : shape_.channels);
  return along / kSparseLanes * of_unit + sparse_place(along % kSparseLanes, depth);
}

int64_t SparseKvCache::full_blocks() const {
  int64_t longest = 0;
  for (int64_t length : lengths_) longest = std::max(longest, length);
  return longest / kSparseTokens;
}

// Room for the blocks that the step can fill: what a prompt needs at once, and then a little at a time.
void SparseKvCache::reserve(const KvStep& step) {
  int64_t longest = 0;
  for (int64_t length : lengths_) longest = std::max(longest, length);
  require(step.count <= kMostTokens - longest, "a cache holds 2^30 tokens of a sequence at most");
  const auto blocks = static_cast<int64_t>(chunk_of_.size());
  allocate(blocks, (longest + step.count) / kSparseTokens - blocks);
}

// Memory for so many blocks more, from `first` on, and one to spare; none for those before it that have none yet. In
// small pieces where they will be given back one by one.
void SparseKvCache::allocate(int64_t first, int64_t blocks) {
  const auto add = [this](int64_t at, int64_t count, int64_t bytes) {
    chunks_.push_back({KvMemory(bytes), at, count});
    chunk_of_.resize(size(at + count), chunks_.size() - 1);
  };
  const auto present = static_cast<int64_t>(chunk_of_.size());
  if (first > present) add(present, first - present, 0);
  for (int64_t end = first + blocks; first < end;) {
    const int64_t left = (end - first + kChunkBlocks - 1) / kChunkBlocks * kChunkBlocks;
    const int64_t count = shape_.window ? kChunkBlocks : left;
    add(first, count, shape_.batch * count * slot_bytes() + kSparseSlack);
    first += count;
  }
}

// The first block that a cache whose shortest sequence is this long has memory for.
int64_t SparseKvCache::first_live_block(int64_t shortest) const {
  return first_seen(shortest + 1) / kSparseTokens / kChunkBlocks * kChunkBlocks;
}

void SparseKvCache::release_unseen() {
  const int64_t seen = first_live_block(*std::min_element(lengths_.begin(), lengths_.end()));
  for (Chunk& chunk : chunks_) {
    if (chunk.first + chunk.blocks <= seen && chunk.memory.size()) chunk.memory = KvMemory();
  }
}

void SparseKvCache::append(int64_t sequence, int64_t head, int64_t token, const float* key, const float* value) {
  const bool bf16 = shape_.type == Real::bf16;
  for (int part = 0; part < 2; ++part) {
    uint16_t* to = open(sequence, head, part);
    const float* from = part ? value : key;
    for (int64_t channel = 0; channel < shape_.channels; ++channel) {
      to[place(part, token % kSparseTokens, channel)] =
          bf16 ? float_to_bf16(from[channel]) : float_to_fp16(from[channel]);
    }
  }
}

// The open block, which is full, to its slot.
void SparseKvCache::close(int64_t sequence, int64_t block, int part) {
  const Slot to = slot(sequence, block);
  uint16_t *first = to.values + (part ? room(0) : 0), *next = first;
  thin_out(sequence, part);
  for (int64_t head = 0; head < shape_.heads; ++head) {
    const uint16_t* from = open(sequence, head, part);
    uint32_t* masks = to.masks + (head * 2 + part) * shape_.channels;
    to.starts[head * 2 + part] = static_cast<uint32_t>(next - to.values);
    for (int64_t i = 0; i < shape_.channels; ++i) masks[i] = compress(from + i * kSparseVector, next);
  }
}

// The smallest of each token's keys or values in the open block become zero, all heads taken together: of equals the
// first, in the order of heads and channels.
void SparseKvCache::thin_out(int64_t sequence, int part) {
  const int64_t drop = token_drop(part), channels = shape_.channels, count = shape_.heads * channels;
  if (!drop) return;
  std::vector<uint16_t> halves(size(count));
  for (int64_t token = 0; token < kSparseTokens; ++token) {
    const auto half = [&](int64_t i) -> uint16_t& {
      return open(sequence, i / channels, part)[place(part, token, i % channels)];
    };
    for (int64_t i = 0; i < count; ++i) halves[size(i)] = half(i);
    Limit limit = find_limit(halves.data(), count, drop);
    for (int64_t i = 0; i < count; ++i) {
      const int magnitude = halves[size(i)] & kMagnitude;
      const bool is_limit = magnitude == limit.magnitude && limit.equals > 0;
      limit.equals -= is_limit;
      if (magnitude < limit.magnitude || is_limit) half(i) = 0;
    }
  }
}

// A slot's values back to the open block, as far as they were kept.
void SparseKvCache::reopen(int64_t sequence, int64_t block) {
  const Slot from = slot(sequence, block);
  for (int64_t index = 0; index < 2 * shape_.heads; ++index) {
    const uint16_t* next = from.values + from.starts[index];
    uint16_t* to = open(sequence, index / 2, static_cast<int>(index % 2));
    const uint32_t* masks = from.masks + index * shape_.channels;
    for (int64_t i = 0; i < shape_.channels; ++i) expand(masks[i], next, to + i * kSparseVector);
  }
}

void SparseKvCache::crop(const std::vector<int64_t>& lengths) {
  require(static_cast<int64_t>(lengths.size()) == shape_.batch, "a length is wanted for each sequence");
  for (size_t i = 0; i < lengths.size(); ++i) {
    require(lengths[i] >= 0, "lengths are not negative");
    require(lengths[i] >= lengths_[i] || first_seen(lengths[i] + 1) / kSparseTokens >= live().first,
            "tokens that left the window are gone: the cache cannot be shortened so far");
  }
  for (int64_t sequence = 0; sequence < shape_.batch; ++sequence) {
    int64_t& length = lengths_[size(sequence)];
    const int64_t wanted = std::min(lengths[size(sequence)], length), block = wanted / kSparseTokens;
    if (wanted % kSparseTokens && block < length / kSparseTokens) reopen(sequence, block);
    length = wanted;
  }
}

}  // namespace tilepress
