// Table look-ups that put the stored ones of eight halves, two of each of four lanes, where the eight bits of their
// mask say: the first of each lane in the low eight bytes, the second in the high ones, 0 where nothing is stored.
#pragma once

#include <cstdint>

namespace tilepress {
namespace {

// What to do for one mask: where each byte comes from, and how many halves are taken.
struct alignas(32) PairShuffle {
  uint8_t bytes[16];
  uint64_t count;
};

struct PairShuffles {
  PairShuffle of[256];
};

constexpr PairShuffles make_pair_shuffles() {
  constexpr uint8_t kNothing = 0xff;  // past any table, for which a look-up gives 0
  PairShuffles all = {};
  for (int mask = 0; mask < 256; ++mask) {
    PairShuffle& one = all.of[mask];
    for (int place = 0; place < 8; ++place) {
      const bool set = mask >> place & 1;
      const int to = (place & 1) * 8 + place / 2 * 2;
      one.bytes[to] = set ? static_cast<uint8_t>(2 * one.count) : kNothing;
      one.bytes[to + 1] = set ? static_cast<uint8_t>(2 * one.count + 1) : kNothing;
      one.count += set;
    }
  }
  return all;
}

constexpr PairShuffles kPairShuffles = make_pair_shuffles();

}  // namespace
}  // namespace tilepress
