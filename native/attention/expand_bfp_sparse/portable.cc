#include "attention/expand_bfp_sparse/expand_units.h"

namespace tilepress {
namespace {

struct Plain {
  template <int bits>
  static void expand(uint64_t mask, const uint8_t* stream, int64_t at, uint8_t* to) {
    for (int i = 0; i < kRowBytes; ++i) to[i] = 0;
    for (int64_t bit = at * bits; mask; mask &= mask - 1, bit += bits) {
      const int two = stream[bit / 8] | stream[bit / 8 + 1] << 8;
      to[__builtin_ctzll(mask)] = static_cast<uint8_t>(two >> (bit % 8) & ((1 << bits) - 1));
    }
  }
};

void expand_bfp_sparse(const SparseBfpUnits& units, uint8_t* codes, uint8_t* lows) {
  expand_units<Plain>(units, codes, lows);
}

TILEPRESS_KERNEL(expand_bfp_sparse);

}  // namespace
}  // namespace tilepress
