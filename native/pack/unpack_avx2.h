#pragma once

#include <immintrin.h>

#include "pack/unpack_block.h"
#include "simd/mask_shuffles.h"

namespace tilepress {
namespace {

// Non-zeros of 64 places before those sixteen. Counted from the first on each time, so that no count waits for
// another.
[[gnu::always_inline]] inline int64_t nonzeros_before(uint64_t places, int sixteen) {
  return _mm_popcnt_u64(places & ((uint64_t{1} << 16 * sixteen) - 1));
}

struct Avx2 {
  // Eight codes at a time, by `pdep`, which puts the low bits of a word where a mask has bits; of four bits 32.
  static void unpack_stream(int bits, const uint8_t* in, int64_t count, uint8_t* codes) {
    if (bits == 4) return unpack_nibbles(in, count, codes);
    const uint64_t places = 0x0101010101010101 * ((1u << bits) - 1);
    for (int64_t i = 0; i < count; i += 8, in += bits) {
      uint64_t eight;
      std::memcpy(&eight, in, 8);
      eight = _pdep_u64(eight, places);
      std::memcpy(codes + i, &eight, 8);
    }
  }

  static int64_t expand(const uint8_t* nonzeros, const uint8_t* mask, int count, uint8_t* codes, uint8_t* keep) {
    int64_t consumed = 0;
    for (int i = 0; i < count; i += 64, mask += 8) {
      uint64_t places;
      std::memcpy(&places, mask, sizeof(places));
      for (int part = 0; part < 4; ++part) {
        const __m128i ranks = ranks_of(mask + 2 * part);
        store(codes + i + 16 * part,
              _mm_shuffle_epi8(load(nonzeros + consumed + nonzeros_before(places, part)), ranks));
        if (keep) store(keep + i + 16 * part, nonzeros_places(ranks));
      }
      consumed += _mm_popcnt_u64(places);
    }
    return consumed;
  }

  static int64_t expand(const uint16_t* nonzeros, const uint8_t* mask, int count, uint16_t* codes, uint8_t* keep) {
    int64_t consumed = 0;
    for (int i = 0; i < count; i += 16, mask += 2) {
      const __m128i first = load(nonzeros + consumed), second = load(nonzeros + consumed + kShuffles.count[mask[0]]);
      store(codes + i, _mm_shuffle_epi8(first, load(kWordShuffles.expand[mask[0]])));
      store(codes + i + 8, _mm_shuffle_epi8(second, load(kWordShuffles.expand[mask[1]])));
      if (keep) store(keep + i, nonzeros_places(ranks_of(mask)));
      consumed += count_of(mask);
    }
    return consumed;
  }

 private:
  static __m128i load(const void* from) { return _mm_loadu_si128(static_cast<const __m128i*>(from)); }
  static void store(void* to, __m128i bytes) { _mm_storeu_si128(static_cast<__m128i*>(to), bytes); }

  static void unpack_nibbles(const uint8_t* in, int64_t count, uint8_t* codes) {
    const __m128i lower = _mm_set1_epi8(15);
    for (int64_t i = 0; i < count; i += 32, in += 16) {
      const __m128i pairs = load(in);
      const __m128i low = _mm_and_si128(pairs, lower), high = _mm_and_si128(_mm_srli_epi16(pairs, 4), lower);
      store(codes + i, _mm_unpacklo_epi8(low, high));
      store(codes + i + 16, _mm_unpackhi_epi8(low, high));
    }
  }

  // Of sixteen places, each one's rank among the set bits of two bytes of a mask, or something negative.
  static __m128i ranks_of(const uint8_t* mask) {
    return _mm_add_epi8(load(kWideShuffles.first[mask[0]]), load(kWideShuffles.second[mask[1]]));
  }
  static __m128i nonzeros_places(__m128i ranks) {
    return _mm_add_epi8(_mm_cmpgt_epi8(_mm_setzero_si128(), ranks), _mm_set1_epi8(1));
  }
  static int64_t count_of(const uint8_t* mask) {
    uint16_t bits;
    std::memcpy(&bits, mask, 2);
    return _mm_popcnt_u32(bits);
  }
};

}  // namespace
}  // namespace tilepress
