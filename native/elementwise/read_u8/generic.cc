// Compiled for: portable avx2 avx512
// Reading as fast as memory allows, for measuring what it allows.
#include "simd/simd.h"
#include "tilepress/elementwise.h"

namespace tilepress {
namespace {

using Uint64s = Vector<uint64_t>;

// One byte after the other, or several parts in turn.
template <size_t parts>
uint64_t read_parts(const uint8_t* data, size_t size) {
  constexpr size_t kLine = 64, kVectors = kLine / kSimdBytes;
  [[maybe_unused]] constexpr size_t kNear = 512, kFar = 8192;  // bytes ahead: the fastest up to 2048 and 16384
  const size_t part = size / parts / kLine * kLine;
  Uint64s sums[kVectors] = {};
  for (size_t at = 0; at < part; at += kLine) {
    for (size_t i = 0; i < parts; ++i) {
      const uint8_t* from = data + i * part + at;
      __builtin_prefetch(from + kNear);
#if defined(__x86_64__)
      if (parts == 1) __builtin_prefetch(from + kFar, 0, 2);
#endif
      for (size_t j = 0; j < kVectors; ++j) sums[j] += load<Uint64s>(from + j * kSimdBytes);
    }
  }
  uint64_t total = 0;
  for (size_t at = parts * part; at < size; ++at) total += data[at];
  for (const Uint64s& sum : sums) {
    for (int i = 0; i < kSimdBytes / 8; ++i) total += sum[i];
  }
  return total;
}

uint64_t read_u8(const uint8_t* data, size_t size, bool in_parts) {
  return in_parts ? read_parts<4>(data, size) : read_parts<1>(data, size);
}

TILEPRESS_KERNEL(read_u8);

}  // namespace
}  // namespace tilepress
