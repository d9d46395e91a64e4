#include "dispatch/kv_thin.h"

#include "dispatch/kv_cache.h"
#include "dispatch/registry.h"

namespace tilepress {
namespace {

size_t size(int64_t count) { return static_cast<size_t>(count); }

int high_at(const KvUnits& unit, int row, int place) {
  return (unit.codes[(row & 3) * 64 + place] >> (row & 4) & 15) | (unit.codes[256 + place] >> row & 1) << 4;
}

int low_at(const KvUnits& unit, int row, int place) {
  return unit.lows ? unit.lows[(row & 3) * 64 + place] >> (row & 4) & 15 : 0;
}

void add_field(std::vector<uint8_t>& stream, int64_t index, int bits, int field) {
  const int64_t bit = index * bits;
  stream.resize(size(bit / 8 + 2));
  const int two = field << (bit % 8);
  stream[size(bit / 8)] = static_cast<uint8_t>(stream[size(bit / 8)] | two);
  stream[size(bit / 8 + 1)] = static_cast<uint8_t>(two >> 8);
}

void add_slack(std::vector<uint8_t>& stream) {
  stream.resize(stream.size() + size(kThinSlack));
  stream.shrink_to_fit();
}

template <class T>
int64_t bytes_of(const std::vector<T>& values) {
  return static_cast<int64_t>(values.capacity() * sizeof(T));
}

}  // namespace

ThinBlock::ThinBlock(int64_t heads, int64_t units, bool has_lows) : units_(units), has_lows_(has_lows) {
  masks_.reserve(size(heads * units * kKvRows));
  exponents_.reserve(size(heads * units * kKvUnitExponents));
  starts_.reserve(size(heads * 2));
}

void ThinBlock::add(const KvUnits& units) {
  for (int64_t i = 0; i < units_; ++i) {
    const KvUnits unit = units.unit(i);
    if (i % (units_ / 2) == 0) starts_.push_back(values_);
    for (int row = 0; row < kKvRows; ++row) {
      uint64_t mask = 0;
      for (int place = 0; place < 64; ++place) {
        const int high = high_at(unit, row, place), low = low_at(unit, row, place);
        if (!high && !low) continue;
        mask |= uint64_t{1} << place;
        add_field(highs_, values_, kThinHighBits, high);
        if (has_lows_) add_field(lows_, values_, kThinLowBits, low);
        ++values_;
      }
      masks_.push_back(mask);
    }
  }
  exponents_.insert(exponents_.end(), units.exponents, units.exponents + units_ * kKvUnitExponents);
}

void ThinBlock::finish() {
  add_slack(highs_);
  if (has_lows_) add_slack(lows_);
}

KvUnits ThinBlock::expand(int64_t head, int64_t first, int64_t count, uint8_t* codes, uint8_t* lows) const {
  const int64_t unit = head * units_ + first;
  const ThinUnits thin = {masks_.data() + unit * kKvRows, highs_.data(), has_lows_ ? lows_.data() : nullptr,
                          starts_[size(2 * head + (first ? 1 : 0))], count};
  choose<ops::expand_bfp_sparse>()(thin, codes, lows);
  auto* exponents = const_cast<uint8_t*>(exponents_.data()) + unit * kKvUnitExponents;  // which nobody sets any more
  return {codes, has_lows_ ? lows : nullptr, exponents};
}

int64_t ThinBlock::bytes() const {
  return bytes_of(masks_) + bytes_of(exponents_) + bytes_of(starts_) + bytes_of(highs_) + bytes_of(lows_);
}

// Blocks of a sequence that have come to rest: full, and with no token that will be cut to fewer bits.
int64_t KvCache::resting_blocks(int64_t length) const {
  return is_thin() ? std::max<int64_t>(length - changing_tokens(), 0) / kKvTokens : 0;
}

// The keys and values of a block that is thin, or some of them, in memory that the next call takes over.
KvUnits KvCache::expanded(int64_t sequence, int64_t head, int64_t block, int64_t first, int64_t count) const {
  static thread_local std::vector<uint8_t> codes, lows;
  codes.resize(size(unit_count() * kKvUnitCodes));
  lows.resize(size(unit_count() * kKvUnitLows));
  return thin_[size(sequence)][size(block)].expand(head, first, count, codes.data(), lows.data());
}

KvUnits KvCache::whole(int64_t sequence, int64_t head, int64_t block) const {
  return is_thin(sequence, block) ? expanded(sequence, head, block, 0, unit_count()) : keys(sequence, head, block, 0);
}

// Takes the zeros out of chunks that have come to rest in all sequences, and gives back the memory they had; but for
// the first, whose tokens have more bits.
void KvCache::thin_out() {
  if (!is_thin()) return;
  const int64_t end = resting_blocks(shortest()) / kChunkBlocks * kChunkBlocks;
  for (int64_t sequence = 0; sequence < sizes_.batch; ++sequence) {
    auto& blocks = thin_[size(sequence)];
    for (auto block = std::max(static_cast<int64_t>(blocks.size()), first_thin()); block < end; ++block) {
      ThinBlock thin(sizes_.heads, unit_count(), is_wide_everywhere());
      for (int64_t head = 0; head < sizes_.heads; ++head) thin.add(keys(sequence, head, block, length(sequence)));
      thin.finish();
      blocks.resize(size(block));
      blocks.push_back(std::move(thin));
    }
  }
  for (Chunk& chunk : chunks_) {
    const bool rests = chunk.first >= first_thin() && chunk.first + chunk.blocks <= end;
    if (rests && chunk.memory.size()) chunk.memory = KvMemory();
  }
}

// Before a sequence is shortened to `length`: blocks that will change again have their own memory, as have all after
// them.
void KvCache::thicken(int64_t sequence, int64_t length) {
  auto& blocks = thin_[size(sequence)];
  const int64_t first = std::max(resting_blocks(length), first_thin());
  const auto end = static_cast<int64_t>(blocks.size());
  if (first >= end) return;
  for (Chunk& chunk : chunks_) {
    const bool wanted = chunk.first + chunk.blocks > first && !chunk.memory.size();
    if (wanted) chunk.memory = KvMemory(chunk_bytes(chunk.blocks));
  }
  std::vector<ThinBlock> old(std::make_move_iterator(blocks.begin() + first), std::make_move_iterator(blocks.end()));
  blocks.resize(size(first));
  for (int64_t block = first; block < std::min(end, (length + kKvTokens - 1) / kKvTokens); ++block) {
    for (int64_t head = 0; head < sizes_.heads; ++head) {
      const KvUnits to = keys(sequence, head, block, length);
      const KvUnits from = old[size(block - first)].expand(head, 0, unit_count(), to.codes, to.lows);
      std::copy(from.exponents, from.exponents + unit_count() * kKvUnitExponents, to.exponents);
    }
  }
}

}  // namespace tilepress
