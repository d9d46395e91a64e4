// Look-ups that move elements by the bits of a mask, since NEON and AVX2 have no expand and no compress.
#pragma once

#include <cstdint>

namespace tilepress {
namespace {

constexpr uint8_t kNothing = 0xff;  // an index past any table, for which a look-up gives 0

// Eight elements, bytes.
struct Shuffles {
  uint8_t compact[256][8];  // places of the set bits, in order
  uint8_t expand[256][8];   // for each place, its rank among the set bits
  uint8_t count[256];       // set bits
};

constexpr Shuffles make_shuffles() {
  Shuffles all = {};
  for (int mask = 0; mask < 256; ++mask) {
    uint8_t rank = 0;
    for (int place = 0; place < 8; ++place) all.compact[mask][place] = kNothing;
    for (int place = 0; place < 8; ++place) {
      const bool set = mask >> place & 1;
      all.expand[mask][place] = set ? rank : kNothing;
      if (set) all.compact[mask][rank++] = static_cast<uint8_t>(place);
    }
    all.count[mask] = rank;
  }
  return all;
}

constexpr Shuffles kShuffles = make_shuffles();

// The same for sixteen elements and their two bytes of mask: the sum of first[low byte] and second[high byte] has, for
// each place, its rank among the set bits, or something past any table.
struct WideShuffles {
  uint8_t first[256][16], second[256][16];
};

constexpr WideShuffles make_wide_shuffles() {
  constexpr uint8_t kDropped = 0x80;
  WideShuffles all = {};
  for (int mask = 0; mask < 256; ++mask) {
    for (int place = 0; place < 8; ++place) {
      const uint8_t rank = kShuffles.expand[mask][place];
      all.first[mask][place] = all.second[mask][8 + place] = rank == kNothing ? kDropped : rank;
      all.first[mask][8 + place] = kShuffles.count[mask];
    }
  }
  return all;
}

constexpr WideShuffles kWideShuffles = make_wide_shuffles();

// Eight elements of two bytes.
struct WordShuffles {
  uint8_t compact[256][16], expand[256][16];
};

constexpr WordShuffles make_word_shuffles() {
  WordShuffles all = {};
  const auto byte_of = [](uint8_t element, int byte) {
    return element == kNothing ? kNothing : static_cast<uint8_t>(2 * element + byte);
  };
  for (int mask = 0; mask < 256; ++mask) {
    for (int i = 0; i < 16; ++i) {
      all.compact[mask][i] = byte_of(kShuffles.compact[mask][i / 2], i % 2);
      all.expand[mask][i] = byte_of(kShuffles.expand[mask][i / 2], i % 2);
    }
  }
  return all;
}

constexpr WordShuffles kWordShuffles = make_word_shuffles();

}  // namespace
}  // namespace tilepress
