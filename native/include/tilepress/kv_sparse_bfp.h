// Sparse BFP: units of kv_bfp.h without their zeros, and the kernel that expands them.
//
// Each of a unit's eight rows has a 64-bit mask, lowest bit first. The non-zeros of all units, in order, are two bit
// streams, lowest bit first: highs of five bits each and, if units have lows, lows of four.
#pragma once

#include <cstdint>

#include "tilepress/kv_bfp.h"

namespace tilepress {

inline constexpr int kSparseHighBits = 5, kSparseLowBits = 4;
inline constexpr int64_t kSparseBfpSlack = 64;  // bytes that may be read past a stream

struct SparseBfpUnits {
  const uint64_t* masks;        // [count, 8]
  const uint8_t *highs, *lows;  // lows may be null
  int64_t first;                // index of the first unit's first value in the streams
  int64_t count;
};

// Writes codes and, if there is a stream of them, lows, as in kv_bfp.h.
TILEPRESS_OPERATION(expand_bfp_sparse, void(const SparseBfpUnits&, uint8_t* codes, uint8_t* lows));

}  // namespace tilepress
