#pragma once

#include <immintrin.h>

#include "kernels/unpack/unpack_block.h"

namespace tilepress {
namespace {

// A core asks memory for more at a time if it is told early what comes: into the second cache from afar, since the
// first can wait for few lines at a time, and into the first from near. Always inlined: a call of a function that does
// nothing but prefetch is one that gcc leaves out.
[[gnu::always_inline]] inline void prefetch_ahead(const uint8_t* from) {
  constexpr int kFar = 4096, kNear = 512;  // bytes
  _mm_prefetch(reinterpret_cast<const char*>(from) + kFar, _MM_HINT_T1);
  _mm_prefetch(reinterpret_cast<const char*>(from) + kNear, _MM_HINT_T0);
}

// How 64 codes of `bits` bits are taken apart: eight of them are `bits` bytes, which go to one 64-bit lane, and a shift
// for each byte of the lane does the rest.
struct StreamTables {
  constexpr explicit StreamTables(int bits) : places(), shifts() {
    for (int i = 0; i < 64; ++i) {
      places[i] = static_cast<uint8_t>(i / 8 * bits + i % 8);
      shifts[i] = static_cast<uint8_t>(i % 8 * bits);
    }
  }

  alignas(64) uint8_t places[64], shifts[64];
};

constexpr StreamTables kStreamTables[9] = {StreamTables(0), StreamTables(1), StreamTables(2),
                                           StreamTables(3), StreamTables(4), StreamTables(5),
                                           StreamTables(6), StreamTables(7), StreamTables(8)};

// The codes of a sparse block, up to 64 at a time. Nothing is read from further than the last code, and a vector from
// there on lies within the slack.
class Avx512Stream {
 public:
  explicit Avx512Stream(const SpanWeights& weights)
      : from_(weights.packed),
        taken_(weights.taken),
        limit_(weights.limit),
        bits_(weights.format->bits),
        gather_(_mm512_load_si512(kStreamTables[bits_].places)),
        shifts_(_mm512_load_si512(kStreamTables[bits_].shifts)),
        low_(_mm512_set1_epi8(static_cast<char>((1 << bits_) - 1))) {}

  // Codes of the block up to here; -1 where the mask asked for more than it has.
  int64_t taken() const { return over_ ? -1 : taken_; }

  // Codes at the places of the mask's bits, what `others` has elsewhere. Codes of less than eight bits are gathered
  // eight to a 64-bit lane and taken apart by shifts, from whatever bit they begin at.
  template <bool bytes>
  [[gnu::always_inline]] __m512i expand(uint64_t mask, __m512i others) {
    const int64_t bit = bytes ? 0 : taken_ * bits_;
    const uint8_t* at = bytes ? from_ + taken_ : from_ + bit / 8;
    __m512i codes = _mm512_loadu_si512(at);
    prefetch_ahead(at);
    if constexpr (!bytes) {
      const __m512i shifts = _mm512_add_epi8(shifts_, _mm512_set1_epi8(static_cast<char>(bit % 8)));
      codes = _mm512_multishift_epi64_epi8(shifts, _mm512_permutexvar_epi8(gather_, codes));
      codes = _mm512_and_si512(codes, low_);
    }
    taken_ += _mm_popcnt_u64(mask);
    if (taken_ > limit_) [[unlikely]]
      taken_ = limit_, over_ = true;
    return _mm512_mask_expand_epi8(others, mask, codes);
  }

 private:
  const uint8_t* from_;
  int64_t taken_, limit_;
  int bits_;
  bool over_ = false;
  __m512i gather_, shifts_, low_;
};

struct Avx512 {
  static void unpack_stream(int bits, const uint8_t* in, int64_t count, uint8_t* codes) {
    const StreamTables& tables = kStreamTables[bits];
    const __m512i gather = _mm512_load_si512(tables.places), shift = _mm512_load_si512(tables.shifts);
    const __m512i low_bits = _mm512_set1_epi8(static_cast<char>((1 << bits) - 1));
    for (int64_t i = 0; i < count; i += 64, in += 8 * bits) {
      const __m512i lanes = _mm512_permutexvar_epi8(gather, _mm512_loadu_si512(in));
      _mm512_storeu_si512(codes + i, _mm512_and_si512(_mm512_multishift_epi64_epi8(shift, lanes), low_bits));
    }
  }

  static int64_t expand(const uint8_t* kept, const uint8_t* mask, int count, uint8_t* codes, uint8_t* keep) {
    int64_t taken = 0;
    for (int i = 0; i < count; i += 64) {
      uint64_t bits;
      std::memcpy(&bits, mask + i / 8, 8);
      _mm512_storeu_si512(codes + i, _mm512_maskz_expand_epi8(bits, _mm512_loadu_si512(kept + taken)));
      _mm512_storeu_si512(keep + i, _mm512_maskz_set1_epi8(bits, 1));
      taken += _mm_popcnt_u64(bits);
    }
    return taken;
  }

  static int64_t expand(const uint16_t* kept, const uint8_t* mask, int count, uint16_t* codes, uint8_t* keep) {
    int64_t taken = 0;
    for (int i = 0; i < count; i += 32) {
      uint32_t bits;
      std::memcpy(&bits, mask + i / 8, 4);
      _mm512_storeu_si512(codes + i, _mm512_maskz_expand_epi16(bits, _mm512_loadu_si512(kept + taken)));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(keep + i), _mm256_maskz_set1_epi8(bits, 1));
      taken += _mm_popcnt_u32(bits);
    }
    return taken;
  }
};

}  // namespace
}  // namespace tilepress
