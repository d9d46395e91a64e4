// Bit planes in plain C++.
#pragma once

#include "pack/planes.h"

namespace tilepress {
namespace {

// Eight bytes of eight bits: bit i of byte j to bit j of byte i. Halves, quarters and eighths change places.
uint64_t transpose(uint64_t x) {
  const auto swap = [&](int by, uint64_t mask) {
    const uint64_t differ = (x ^ x >> by) & mask;
    x ^= differ ^ differ << by;
  };
  swap(28, 0x00000000f0f0f0f0);
  swap(14, 0x0000cccc0000cccc);
  swap(7, 0x00aa00aa00aa00aa);
  return x;
}

}  // namespace
}  // namespace tilepress
