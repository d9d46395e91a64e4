// A plane is what `vpmovb2m` makes of 64 bytes: their top bits. Doubling the bytes brings up the next.
#pragma once

#include <immintrin.h>

#include "pack/planes.h"

namespace tilepress {
namespace {

// A group as 16-bit words, and as their high and low bytes.
struct Words {
  __m512i first, second;
};
struct Halves {
  __m512i high, low;
};

constexpr struct Places {
  constexpr Places() : low(), high(), first(), second() {
    for (int i = 0; i < kPlaneValues; ++i) {
      low[i] = static_cast<uint8_t>(2 * i);
      high[i] = static_cast<uint8_t>(2 * i + 1);
      first[i] = static_cast<uint8_t>(i / 2 + i % 2 * kPlaneValues);
      second[i] = static_cast<uint8_t>(first[i] + kPlaneValues / 2);
    }
  }
  alignas(64) uint8_t low[kPlaneValues], high[kPlaneValues], first[kPlaneValues], second[kPlaneValues];
} kPlaces;

}  // namespace
}  // namespace tilepress
