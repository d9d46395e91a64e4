// Units from masks and streams, rows of which `Simd` expands.
#pragma once

#include "tilepress/kv_thin.h"

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

// Rows of one unit; gives the value after its last.
template <class Simd, int bits>
int64_t expand_rows(const uint64_t* masks, const uint8_t* stream, int64_t at, Rows& rows) {
  for (int r = 0; r < kKvRows; ++r) {
    Simd::template expand<bits>(masks[r], stream, at, rows[r]);
    at += __builtin_popcountll(masks[r]);
  }
  return at;
}

template <class Simd>
void expand_units(const ThinUnits& units, uint8_t* codes, uint8_t* lows) {
  int64_t at = units.first;
  for (int64_t unit = 0; unit < units.count; ++unit, codes += kKvUnitCodes) {
    const uint64_t* masks = units.masks + unit * kKvRows;
    Rows rows;
    const int64_t next = expand_rows<Simd, kThinHighBits>(masks, units.highs, at, rows);
    pack_nibbles(rows, codes);
    pack_signs(rows, codes + kKvUnitLows);
    if (units.lows) {
      expand_rows<Simd, kThinLowBits>(masks, units.lows, at, rows);
      pack_nibbles(rows, lows + unit * kKvUnitLows);
    }
    at = next;
  }
}

}  // namespace
}  // namespace tilepress
