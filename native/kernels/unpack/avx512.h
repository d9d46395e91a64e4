#pragma once

#include <immintrin.h>

#include "kernels/scales.h"
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
  constexpr explicit StreamTables(int bits) : places(), shifts(), low(static_cast<char>((1 << bits) - 1)) {
    for (int i = 0; i < 64; ++i) {
      places[i] = static_cast<uint8_t>(i / 8 * bits + i % 8);
      shifts[i] = static_cast<uint8_t>(i % 8 * bits);
    }
  }

  alignas(64) uint8_t places[64], shifts[64];
  char low;  // the bits of a code
};

constexpr StreamTables kStreamTables[9] = {StreamTables(0), StreamTables(1), StreamTables(2),
                                           StreamTables(3), StreamTables(4), StreamTables(5),
                                           StreamTables(6), StreamTables(7), StreamTables(8)};

constexpr int kMaskBytes = kLineCodes / 8;

// The kept codes of a sparse span, expanded to their places.
//   next<lines, filled>(mask, others, work): calls work(line, codes) with the codes of each line of 64 places, and
//   where there is none what `others` has if `filled`, else 0
//   taken(): how many they were; -1 where the mask asked for more than the block has
// A copy that has gone on is assigned in parts, as it was changed: a vector of parts just stored has to wait for them.

template <bool filled>
[[gnu::always_inline]] inline __m512i expanded(uint64_t mask, __m512i codes, __m512i others) {
  return filled ? _mm512_mask_expand_epi8(others, mask, codes) : _mm512_maskz_expand_epi8(mask, codes);
}

// Codes of eight bits, where they lie. Nothing is read from further than the last code on, and a vector from there on
// lies within the slack.
class KeptBytes {
 public:
  static constexpr int kBits = 8;

  KeptBytes(const SpanWeights& weights, uint8_t*)
      : from_(weights.packed + weights.taken), end_(weights.packed + weights.limit), at_(from_) {}
  KeptBytes(const KeptBytes&) = default;
  KeptBytes& operator=(const KeptBytes& later) {
    at_ = later.at_;
    over_ = later.over_;
    return *this;
  }

  template <int lines, bool filled, class Work>
  [[gnu::always_inline]] void next(const uint8_t* mask, __m512i others, const Work& work) {
    if (end_ - at_ >= lines * kLineCodes) [[likely]]
      return expand<lines, filled, false>(mask, others, work);
    expand<lines, filled, true>(mask, others, work);
  }

  int64_t taken() const { return over_ ? -1 : at_ - from_; }

 private:
  template <int lines, bool filled, bool checked, class Work>
  [[gnu::always_inline]] void expand(const uint8_t* mask, __m512i others, const Work& work) {
#pragma GCC unroll 4
    for (int line = 0; line < lines; ++line) {
      uint64_t bits;
      std::memcpy(&bits, mask + line * kMaskBytes, sizeof(bits));
      if (line % 2 == 0) prefetch_ahead(at_);
      work(line, expanded<filled>(bits, _mm512_loadu_si512(at_), others));
      at_ += _mm_popcnt_u64(bits);
      if (checked && at_ > end_) at_ = end_, over_ = true;
    }
  }

  const uint8_t *const from_, *const end_;
  const uint8_t* at_;
  bool over_ = false;
};

// Codes of less than eight bits, unpacked to bytes some way ahead of where they are wanted: a vector that lies across
// two just stored cannot be loaded before these have left for the cache. They go to the first kKeptBytes of scratch
// memory, and when these are full what is left of them to their beginning. `bits`: those of a code, or 0: as the format
// says.
inline constexpr int kKeptBytes = 5120;
static_assert(kKeptBytes <= span_scratch_bytes(1));

template <int bits>
class KeptFields {
 public:
  static constexpr int kBits = bits;

  // Streams can be read from every eighth code on, where a byte begins.
  KeptFields(const SpanWeights& weights, uint8_t* scratch)
      : tables_(&kStreamTables[weights.format->bits]),
        line_bytes_(kMaskBytes * weights.format->bits),
        begin_(scratch),
        before_(weights.taken % 8),
        most_(weights.limit - weights.taken),
        in_(weights.packed + weights.taken / 8 * weights.format->bits),
        at_(scratch + before_),
        out_(scratch),
        packed_(before_ + most_) {}
  KeptFields(const KeptFields&) = default;
  KeptFields& operator=(const KeptFields& later) {
    in_ = later.in_;
    at_ = later.at_;
    out_ = later.out_;
    packed_ = later.packed_;
    moved_ = later.moved_;
    return *this;
  }

  template <int lines, bool filled, class Work>
  [[gnu::always_inline]] void next(const uint8_t* mask, __m512i others, const Work& work) {
    static_assert(lines <= kMostLines);
    if (out_ - at_ < kAhead) unpack();
#pragma GCC unroll 4
    for (int line = 0; line < lines; ++line) {
      uint64_t kept;
      std::memcpy(&kept, mask + line * kMaskBytes, sizeof(kept));
      work(line, expanded<filled>(kept, _mm512_loadu_si512(at_), others));
      at_ += _mm_popcnt_u64(kept);
    }
  }

  int64_t taken() const {
    const int64_t count = moved_ + (at_ - begin_) - before_;
    return count > most_ ? -1 : count;
  }

 private:
  // In codes, in lines, and of these in how many are taken together: two of four bits are a vector of bytes.
  static constexpr int kAhead = 1024, kAtOnce = 8, kTogether = bits == 4 ? 2 : 1, kMostLines = 4;

  // These are inlined, that stores of bytes cannot be thought to change what is kept here.
  [[gnu::always_inline]] void unpack() {
    constexpr int kMost = kKeptBytes - (kMostLines + 1) * kLineCodes;  // a mask may ask for as much past the last code
    if (packed_ <= 0 && at_ > out_) [[unlikely]]
      moved_ += at_ - out_, at_ = out_;
    if (out_ - begin_ > kMost - kAtOnce * kLineCodes) [[unlikely]]
      rewind();
#pragma GCC unroll 8
    for (int line = 0; line < kAtOnce; line += kTogether) {
      if (packed_ <= 0) break;
      prefetch_ahead(in_);
      for (int i = 0; i < kTogether; ++i) {
        _mm512_storeu_si512(out_, unpacked());
        in_ += line_bytes_;
        out_ += kLineCodes;
      }
      packed_ -= kTogether * kLineCodes;
    }
  }

  [[gnu::always_inline]] void rewind() {
    const int64_t by = (at_ - begin_) / kLineCodes * kLineCodes;
    for (uint8_t* to = begin_; to + by < out_; to += kLineCodes) _mm512_storeu_si512(to, _mm512_loadu_si512(to + by));
    at_ -= by;
    out_ -= by;
    moved_ += by;
  }

  [[gnu::always_inline]] __m512i unpacked() const {
    if constexpr (bits == 4) {
      constexpr int kSelect = 0xca;  // a ? b : c
      const __m512i pairs = _mm512_cvtepu8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(in_)));
      const __m512i both =
          _mm512_ternarylogic_epi32(_mm512_set1_epi16(0xff), pairs, _mm512_slli_epi16(pairs, 4), kSelect);
      return _mm512_and_si512(both, _mm512_set1_epi8(15));
    }
    const __m512i places = _mm512_load_si512(tables_->places), shifts = _mm512_load_si512(tables_->shifts);
    const __m512i codes =
        _mm512_multishift_epi64_epi8(shifts, _mm512_permutexvar_epi8(places, _mm512_loadu_si512(in_)));
    return _mm512_and_si512(codes, _mm512_set1_epi8(tables_->low));
  }

  const StreamTables* const tables_;
  const int64_t line_bytes_;
  uint8_t* const begin_;
  const int64_t before_, most_;
  const uint8_t* in_;
  uint8_t *at_, *out_;
  int64_t packed_, moved_ = 0;  // codes still to be unpacked, and by how many their places were moved
};

// Calls work<Kept>() with the class that takes the codes.
template <class Work>
auto with_kept(const SpanWeights& weights, const Work& work) {
  if (weights.format->bits == 8) return work.template operator()<KeptBytes>();
  if (weights.format->bits == 4) return work.template operator()<KeptFields<4>>();
  return work.template operator()<KeptFields<0>>();
}

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
