// Reading as fast as memory allows, for measuring what it allows; in a nameless namespace for the reason that
// pack_block.h gives.
#pragma once

#include "kernels/byte_vector.h"

namespace tilepress {
namespace {

using Quads [[gnu::vector_size(kSimdBytes)]] = uint64_t;

// Four parts at a time: a core that reads in several places waits for more lines at once.
uint64_t read_bytes_here(const uint8_t* data, size_t size) {
  constexpr size_t kParts = 4, kAhead = 512;  // prefetching this far was the fastest of 0 to 2048 bytes
  constexpr size_t kLine = 64, kVectors = kLine / kSimdBytes;
  const size_t part = size / kParts / kLine * kLine;
  Quads sums[kVectors] = {};
  for (size_t at = 0; at < part; at += kLine) {
    for (size_t i = 0; i < kParts; ++i) {
      const uint8_t* from = data + i * part + at;
      __builtin_prefetch(from + kAhead);
      for (size_t j = 0; j < kVectors; ++j) sums[j] += load<Quads>(from + j * kSimdBytes);
    }
  }
  uint64_t total = 0;
  for (size_t at = kParts * part; at < size; ++at) total += data[at];
  for (const Quads& sum : sums) {
    for (int i = 0; i < kSimdBytes / 8; ++i) total += sum[i];
  }
  return total;
}

}  // namespace
}  // namespace tilepress
