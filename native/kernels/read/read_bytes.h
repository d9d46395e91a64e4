// Reading as fast as memory allows, for measuring what it allows. A plain loop that compilers turn into vectors; in a
// nameless namespace for the reason that pack_block.h gives.
#pragma once

#include <cstring>

#include "kernels/all.h"

namespace tilepress {
namespace {

uint64_t read_bytes_here(const uint8_t* data, size_t size) {
  constexpr size_t kWords = 32;
  uint64_t sums[kWords] = {}, words[kWords];
  size_t at = 0;
  for (; at + sizeof(words) <= size; at += sizeof(words)) {
    std::memcpy(words, data + at, sizeof(words));
    for (size_t i = 0; i < kWords; ++i) sums[i] += words[i];
  }
  uint64_t total = 0;
  for (; at < size; ++at) total += data[at];
  for (uint64_t sum : sums) total += sum;
  return total;
}

}  // namespace
}  // namespace tilepress
