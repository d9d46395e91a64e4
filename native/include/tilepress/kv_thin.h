// Units of kv.h without their zeros: where their bits lie, and the kernel that brings them back.
//
// Each of a unit's eight rows has a mask of 64 bits, one for each value, lowest first. Of values whose bit is set there
// are two streams of bits, lowest first, one value after the other through all units: highs, five bits each, and where
// there are any lows, four bits each.
#pragma once

#include <cstdint>

#include "tilepress/kv.h"

namespace tilepress {

inline constexpr int kThinHighBits = 5, kThinLowBits = 4;
inline constexpr int64_t kThinSlack = 64;  // bytes that may be read past a stream

struct ThinUnits {
  const uint64_t* masks;        // [count, 8]
  const uint8_t *highs, *lows;  // lows may be null
  int64_t first;                // of the streams' values, the first unit's first
  int64_t count;
};

// codes and, where there is a stream of them, lows, as kv.h has them.
TILEPRESS_OPERATION(expand_bfp_sparse, void(const ThinUnits&, uint8_t* codes, uint8_t* lows));

}  // namespace tilepress
