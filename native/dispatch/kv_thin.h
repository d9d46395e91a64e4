// A block of a cache, of all heads, that no longer changes, without its zeros.
#pragma once

#include <vector>

#include "tilepress/kv_thin.h"

namespace tilepress {

class ThinBlock {
 public:
  ThinBlock() = default;  // nothing
  ThinBlock(int64_t heads, int64_t units, bool has_lows);

  // A head's units, keys and then values, are added after those of the heads before it.
  void add(const KvUnits& units);
  void finish();

  // Of a head, `count` units from `first` on, brought back to where codes and lows say; exponents stay where they are.
  KvUnits expand(int64_t head, int64_t first, int64_t count, uint8_t* codes, uint8_t* lows) const;

  int64_t bytes() const;

 private:
  int64_t units_ = 0;
  bool has_lows_ = false;
  std::vector<uint64_t> masks_;     // [heads, units, 8]
  std::vector<uint8_t> exponents_;  // [heads, units, 10]
  std::vector<uint32_t> starts_;    // [heads, 2]: the first value of keys and of values
  std::vector<uint8_t> highs_, lows_;
  uint32_t values_ = 0;
};

}  // namespace tilepress
