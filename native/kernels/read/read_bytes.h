// Reading as fast as memory allows, for measuring what it allows. A plain loop over cache lines that compilers turn
// into vectors; in a nameless namespace for the reason that pack_block.h gives.
#pragma once

#include <cstring>

#include "kernels/all.h"

namespace tilepress {
namespace {

using Line [[gnu::vector_size(64)]] = uint64_t;

uint64_t read_bytes_here(const uint8_t* data, size_t size) {
  constexpr size_t kAhead = 512;  // prefetching this far was the fastest of 0 to 2048 bytes
  Line sums = {};
  size_t at = 0;
  for (; at + sizeof(Line) <= size; at += sizeof(Line)) {
    Line line;
    __builtin_prefetch(data + at + kAhead);
    std::memcpy(&line, data + at, sizeof(Line));
    sums += line;
  }
  uint64_t total = 0;
  for (; at < size; ++at) total += data[at];
  for (int word = 0; word < 8; ++word) total += sums[word];
  return total;
}

}  // namespace
}  // namespace tilepress
