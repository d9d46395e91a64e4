// Units from masks and bit streams; `Simd` expands one row.
#pragma once

#include "tilepress/kv_sparse_bfp.h"

namespace tilepress {
namespace {

constexpr int kRowBytes = 64;
using Rows = uint8_t[kKvRows][kRowBytes];

// Rows 0 to 3 and 4 to 7 in low and high nibbles.
inline void pack_nibbles(const Rows& rows, uint8_t* to) {
  for (int r = 0; r < kKvRows / 2; ++r) {
    for (int i = 0; i < kRowBytes; ++i) {
      to[r * kRowBytes + i] = static_cast<uint8_t>((rows[r][i] & 15) | rows[r + 4][i] << 4);
    }
  }
}

inline void pack_signs(const Rows& rows, uint8_t* to) {
  for (int i = 0; i < kRowBytes; ++i) to[i] = 0;
  for (int r = 0; r < kKvRows; ++r) {
    for (int i = 0; i < kRowBytes; ++i) to[i] = static_cast<uint8_t>(to[i] | rows[r][i] >> 4 << r);
  }
}

// Expands the rows of one unit; returns the index after its last value.
template <class Simd, int bits>
int64_t expand_rows(const uint64_t* masks, const uint8_t* stream, int64_t at, Rows& rows) {
  for (int r = 0; r < kKvRows; ++r) {
    Simd::template expand<bits>(masks[r], stream, at, rows[r]);
    at += __builtin_popcountll(masks[r]);
  }
  return at;
}

template <class Simd>
void expand_units(const SparseBfpUnits& units, uint8_t* codes, uint8_t* lows) {
  int64_t at = units.first;
  for (int64_t unit = 0; unit < units.count; ++unit, codes += kKvUnitCodes) {
    const uint64_t* masks = units.masks + unit * kKvRows;
    Rows rows;
    const int64_t next = expand_rows<Simd, kSparseHighBits>(masks, units.highs, at, rows);
    pack_nibbles(rows, codes);
    pack_signs(rows, codes + kKvUnitLows);
    if (units.lows) {
      expand_rows<Simd, kSparseLowBits>(masks, units.lows, at, rows);
      pack_nibbles(rows, lows + unit * kKvUnitLows);
    }
    at = next;
  }
}

}  // namespace
}  // namespace tilepress
