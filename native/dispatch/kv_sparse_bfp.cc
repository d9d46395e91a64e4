#include "dispatch/kv_sparse_bfp.h"

#include "dispatch/checks.h"
#include "dispatch/registry.h"

namespace tilepress {
namespace {

int high_at(const ConstKvUnits& unit, int row, int byte) {
  return (unit.codes[(row & 3) * 64 + byte] >> (row & 4) & 15) | (unit.codes[256 + byte] >> row & 1) << 4;
}

int low_at(const ConstKvUnits& unit, int row, int byte) {
  return unit.lows ? unit.lows[(row & 3) * 64 + byte] >> (row & 4) & 15 : 0;
}

void add_field(std::vector<uint8_t>& stream, int64_t index, int bits, int field) {
  const int64_t bit = index * bits;
  stream.resize(size(bit / 8 + 2));
  const int two = field << (bit % 8);
  stream[size(bit / 8)] = static_cast<uint8_t>(stream[size(bit / 8)] | two);
  stream[size(bit / 8 + 1)] = static_cast<uint8_t>(two >> 8);
}

void add_slack(std::vector<uint8_t>& stream) {
  stream.resize(stream.size() + size(kSparseBfpSlack));
  stream.shrink_to_fit();
}

template <class T>
int64_t bytes_of(const std::vector<T>& values) {
  return static_cast<int64_t>(values.capacity() * sizeof(T));
}

}  // namespace

SparseBfpPage::SparseBfpPage(int64_t heads, int64_t units, bool has_lows) : units_(units), has_lows_(has_lows) {
  masks_.reserve(size(heads * units * kKvRows));
  exponents_.reserve(size(heads * units * kKvUnitExponents));
  starts_.reserve(size(heads * 2));
}

void SparseBfpPage::add(const ConstKvUnits& units) {
  for (int64_t i = 0; i < units_; ++i) {
    const ConstKvUnits unit = units.unit(i);
    if (i % (units_ / 2) == 0) starts_.push_back(nonzeros_);
    for (int row = 0; row < kKvRows; ++row) {
      uint64_t mask = 0;
      for (int byte = 0; byte < 64; ++byte) {
        const int high = high_at(unit, row, byte), low = low_at(unit, row, byte);
        if (!high && !low) continue;
        mask |= uint64_t{1} << byte;
        add_field(highs_, nonzeros_, kSparseHighBits, high);
        if (has_lows_) add_field(lows_, nonzeros_, kSparseLowBits, low);
        ++nonzeros_;
      }
      masks_.push_back(mask);
    }
  }
  exponents_.insert(exponents_.end(), units.exponents, units.exponents + units_ * kKvUnitExponents);
}

void SparseBfpPage::finish() {
  add_slack(highs_);
  if (has_lows_) add_slack(lows_);
}

KvUnits SparseBfpPage::expand(int64_t head, int64_t first, int64_t count, uint8_t* codes, uint8_t* lows) const {
  const int64_t unit = head * units_ + first;
  const SparseBfpUnits units = {masks_.data() + unit * kKvRows, highs_.data(), has_lows_ ? lows_.data() : nullptr,
                                starts_[size(2 * head + (first ? 1 : 0))], count};
  choose<ops::expand_bfp_sparse>()(units, codes, lows);
  auto* exponents = const_cast<uint8_t*>(exponents_.data()) + unit * kKvUnitExponents;  // the page is immutable
  return {codes, has_lows_ ? lows : nullptr, exponents};
}

int64_t SparseBfpPage::bytes() const {
  return bytes_of(masks_) + bytes_of(exponents_) + bytes_of(starts_) + bytes_of(highs_) + bytes_of(lows_);
}

}  // namespace tilepress
