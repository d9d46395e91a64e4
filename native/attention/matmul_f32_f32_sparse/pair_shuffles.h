// Byte shuffles that expand eight halves, two of each of four lanes, by the eight bits of their mask: the first of each
// lane to the low eight bytes, the second to the high eight, 0 where the bit is clear.
#pragma once

#include <cstdint>

namespace tilepress {
namespace {

// For one mask: the source of each byte, and the number of halves consumed.
struct alignas(32) PairShuffle {
  uint8_t bytes[16];
  uint64_t count;
};

struct PairShuffles {
  PairShuffle of[256];
};

constexpr PairShuffles make_pair_shuffles() {
  constexpr uint8_t kNothing = 0xff;  // out of range: the shuffle gives 0
  PairShuffles all = {};
  for (int mask = 0; mask < 256; ++mask) {
    PairShuffle& one = all.of[mask];
    for (int bit = 0; bit < 8; ++bit) {
      const bool set = mask >> bit & 1;
      const int to = (bit & 1) * 8 + bit / 2 * 2;
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
