// An immutable page of a BFP store, all heads, as sparse BFP: without zeros.
#pragma once

#include <vector>

#include "tilepress/kv_sparse_bfp.h"

namespace tilepress {

class SparseBfpPage {
 public:
  SparseBfpPage() = default;  // empty
  SparseBfpPage(int64_t heads, int64_t units, bool has_lows);

  // Adds the next head's units, keys and then values. `finish` after the last head.
  void add(const ConstKvUnits& units);
  void finish();

  // Expands `count` units of a head, from `first` on, to codes and lows. Exponents are not copied.
  KvUnits expand(int64_t head, int64_t first, int64_t count, uint8_t* codes, uint8_t* lows) const;

  int64_t bytes() const;

 private:
  int64_t units_ = 0;
  bool has_lows_ = false;
  std::vector<uint64_t> masks_;        // [heads, units, 8]
  std::vector<uint8_t> exponents_;     // [heads, units, 10]
  std::vector<uint32_t> starts_;       // [heads, 2]: index of the first non-zero of keys and of values
  std::vector<uint8_t> highs_, lows_;  // bit streams
  uint32_t nonzeros_ = 0;
};

}  // namespace tilepress
