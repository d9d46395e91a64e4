// Numbers of nine bits as bytes, hardly more of them than there are numbers.
#pragma once

#include <cstdint>

#include "tilepress/linear.h"

namespace tilepress {

inline constexpr int kNineBitPiece = 32;  // numbers of a row that are converted at once

// Numbers from -255 to 255 of up to kNineBitRows rows [rows, kNineBitPiece] as lines [rows + 1, kNineBitPiece]: row r =
// line r + 3 * line r + 1. Whatever the last line is, it fixes the others down to the first, in which it counts 3^rows:
// so it is chosen such that the first is at most half of that. Then each byte is a third of a row and its predecessor,
// and stays below 128.
template <int rows>
void to_lines(const int32_t* values, int8_t* lines) {
  constexpr int32_t kPowers[] = {1, 3, 9, 27, 81}, kMost = 256;
  static_assert(rows <= kNineBitRows && kNineBitFactor == kPowers[1]);
  for (int i = 0; i < kNineBitPiece; ++i) {
    int32_t first = 0;
    for (int row = 0; row < rows; ++row) first += (row % 2 ? -1 : 1) * kPowers[row] * values[row * kNineBitPiece + i];
    const int32_t nearest = (first + kPowers[rows] / 2 + kMost * kPowers[rows]) / kPowers[rows] - kMost;
    int32_t byte = rows % 2 ? nearest : -nearest;
    lines[rows * kNineBitPiece + i] = static_cast<int8_t>(byte);
    for (int row = rows - 1; row >= 0; --row) {
      byte = values[row * kNineBitPiece + i] - kNineBitFactor * byte;
      lines[row * kNineBitPiece + i] = static_cast<int8_t>(byte);
    }
  }
}

}  // namespace tilepress
