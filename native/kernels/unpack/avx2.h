// Eight codes at a time, by `pdep`: it puts the low bits of a word where a mask has bits.
#pragma once

#include <immintrin.h>

#include "kernels/unpack/unpack_block.h"

namespace tilepress {
namespace {

struct Avx2 {
  static void unpack_stream(int bits, const uint8_t* in, int64_t count, uint8_t* codes) {
    const uint64_t places = kEachByte * ((1u << bits) - 1);
    for (int64_t i = 0; i < count; i += 8, in += bits) {
      const uint64_t eight = _pdep_u64(load_eight(in), places);
      std::memcpy(codes + i, &eight, 8);
    }
  }

  static int64_t expand(const uint8_t* kept, const uint8_t* mask, int count, uint8_t* codes, uint8_t* keep) {
    int64_t taken = 0;
    for (int i = 0; i < count; i += 8) {
      const uint64_t ones = _pdep_u64(mask[i / 8], kEachByte);
      const uint64_t eight = _pdep_u64(load_eight(kept + taken), ones * 0xff);
      std::memcpy(codes + i, &eight, 8);
      std::memcpy(keep + i, &ones, 8);
      taken += _mm_popcnt_u32(mask[i / 8]);
    }
    return taken;
  }

 private:
  static constexpr uint64_t kEachByte = 0x0101010101010101;

  static uint64_t load_eight(const uint8_t* from) {
    uint64_t eight;
    std::memcpy(&eight, from, 8);
    return eight;
  }
};

}  // namespace
}  // namespace tilepress
