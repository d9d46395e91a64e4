// Bit planes in plain C++.
#pragma once

#include "pack/planes.h"

namespace tilepress {
namespace {

uint16_t to_half(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const bool overflows = (bits & 0x7fffffff) >= std::bit_cast<uint32_t>(65520.0f);
  return overflows ? static_cast<uint16_t>((bits >> 16 & 0x8000) | 0x7c00) : float_to_fp16(x);
}

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
