#include <immintrin.h>

#include <cstring>

#include "attention/expand_bfp_sparse/expand_units.h"

namespace tilepress {
namespace {

// Eight values at a time, by `pdep`, which deposits low bits where a mask has ones.
struct Avx2 {
  template <int bits>
  static void expand(uint64_t mask, const uint8_t* stream, int64_t at, uint8_t* to) {
    constexpr uint64_t kEachByte = 0x0101010101010101;
    for (int i = 0; i < kRowBytes; i += 8, mask >>= 8) {
      const int64_t bit = at * bits;
      uint64_t word;
      std::memcpy(&word, stream + bit / 8, 8);
      const uint64_t fields = _pdep_u64(word >> (bit % 8), kEachByte * ((1 << bits) - 1));
      const uint64_t eight = _pdep_u64(fields, _pdep_u64(mask & 255, kEachByte) * 255);
      std::memcpy(to + i, &eight, 8);
      at += _mm_popcnt_u64(mask & 255);
    }
  }
};

void expand_bfp_sparse(const SparseBfpUnits& units, uint8_t* codes, uint8_t* lows) {
  expand_units<Avx2>(units, codes, lows);
}

TILEPRESS_KERNEL(expand_bfp_sparse);

}  // namespace
}  // namespace tilepress
