// Compiled for: portable avx2 avx512
// Reading as fast as memory allows, for measuring what it allows.
#include "simd/byte_vector.h"
#include "tilepress/elementwise.h"

namespace tilepress {
namespace {

using Quads [[gnu::vector_size(kSimdBytes)]] = uint64_t;

// One byte after the other, or several parts at a time.
template <size_t parts>
uint64_t read_parts(const uint8_t* data, size_t size) {
  constexpr size_t kLine = 64, kVectors = kLine / kSimdBytes;
  [[maybe_unused]] constexpr size_t kNear = 512, kFar = 8192;  // the fastest of 0 to 2048 and of 0 to 16384 bytes ahead
  const size_t part = size / parts / kLine * kLine;
  Quads sums[kVectors] = {};
  for (size_t at = 0; at < part; at += kLine) {
    for (size_t i = 0; i < parts; ++i) {
      const uint8_t* from = data + i * part + at;
      __builtin_prefetch(from + kNear);
#if defined(__x86_64__)
      if (parts == 1) __builtin_prefetch(from + kFar, 0, 2);
#endif
      for (size_t j = 0; j < kVectors; ++j) sums[j] += load<Quads>(from + j * kSimdBytes);
    }
  }
  uint64_t total = 0;
  for (size_t at = parts * part; at < size; ++at) total += data[at];
  for (const Quads& sum : sums) {
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
