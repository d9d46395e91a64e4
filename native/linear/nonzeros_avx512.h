// Expands the non-zeros of a sparse K-panel, one vector of places at a time: 64 bytes or 32 words. A reader of
// non-zeros provides
//   next<vectors, filled>(mask, fill, work)  calls work(i, codes) for each of `vectors` vectors: codes at the places of
//                                            the mask's set bits, elsewhere those of `fill` if `filled`, else 0
//   consumed()                               codes so far; -1 if the mask has more bits than the block has codes
//   kBits                                    if codes are bytes: their bits; 0: those of the format
// Assignment copies only what next() changes, field by field: loading a whole object as a vector right after a field
// was stored would stall.
#pragma once

#include "pack/unpack_avx512_vbmi2.h"

namespace tilepress {
namespace {

constexpr int kMaxVectors = 4;  // per call of next

// Bytes of the mask per vector.
template <class Code>
inline constexpr int kMaskBytes = kVectorBytes / 8 / static_cast<int>(sizeof(Code));

// Expands the codes from `at` on to the places of a mask, and advances `at`.
template <class Code, bool filled>
[[gnu::always_inline]] inline __m512i expand(const uint8_t* mask, __m512i fill, const uint8_t*& at) {
  const __m512i codes = _mm512_loadu_si512(at);
  if constexpr (sizeof(Code) == 1) {
    uint64_t bits;
    std::memcpy(&bits, mask, sizeof(bits));
    at += _mm_popcnt_u64(bits);
    return filled ? _mm512_mask_expand_epi8(fill, bits, codes) : _mm512_maskz_expand_epi8(bits, codes);
  } else {
    uint32_t bits;
    std::memcpy(&bits, mask, sizeof(bits));
    at += sizeof(Code) * static_cast<size_t>(_mm_popcnt_u32(bits));
    return filled ? _mm512_mask_expand_epi16(fill, bits, codes) : _mm512_maskz_expand_epi16(bits, codes);
  }
}

// Codes of 8 or 16 bits, read in place. No load starts after the last code, so all stay within kSlackBytes.
template <class Code>
class InPlaceNonzeros {
 public:
  static constexpr int kBits = 8 * sizeof(Code);

  InPlaceNonzeros(const KPanel& weights, uint8_t*)
      : from_(weights.packed + kBytes * weights.consumed), end_(weights.packed + kBytes * weights.limit), at_(from_) {}
  InPlaceNonzeros(const InPlaceNonzeros&) = default;
  InPlaceNonzeros& operator=(const InPlaceNonzeros& later) {
    at_ = later.at_;
    over_ = later.over_;
    return *this;
  }

  template <int vectors, bool filled, class Work>
  [[gnu::always_inline]] void next(const uint8_t* mask, __m512i fill, const Work& work) {
    if (end_ - at_ >= vectors * kVectorBytes) [[likely]]
      return expand_all<vectors, filled, false>(mask, fill, work);
    expand_all<vectors, filled, true>(mask, fill, work);
  }

  int64_t consumed() const { return over_ ? -1 : (at_ - from_) / kBytes; }

 private:
  static constexpr int64_t kBytes = sizeof(Code);

  template <int vectors, bool filled, bool checked, class Work>
  [[gnu::always_inline]] void expand_all(const uint8_t* mask, __m512i fill, const Work& work) {
#pragma GCC unroll 4
    for (int i = 0; i < vectors; ++i) {
      if (i % 2 == 0) prefetch_ahead(at_);
      work(i, expand<Code, filled>(mask + i * kMaskBytes<Code>, fill, at_));
      if (checked && at_ > end_) at_ = end_, over_ = true;
    }
  }

  const uint8_t *const from_, *const end_;
  const uint8_t* at_;
  bool over_ = false;
};

// Codes that are unpacked or looked up first, some way ahead of their use: a load that spans two recent stores has to
// wait until both are in the cache. They go to a buffer, the first kNonzeroBytes of `scratch`; when it is full, what is
// left is moved to its start. Codes provides
//   Code             what they are unpacked to
//   kStep            codes per call of unpack
//   unpack(in, out)  kStep codes; may read one vector from `in`
//   kBits            if Code is a byte
inline constexpr int kNonzeroBytes = 5120;
static_assert(kNonzeroBytes <= k_panel_scratch_bytes(1));

template <class Codes>
class NonzerosAhead {
 public:
  using Code = typename Codes::Code;
  static constexpr int kBits = Codes::kBits;

  // Every eighth code of a bit stream starts at a byte: unpacking begins there.
  NonzerosAhead(const KPanel& weights, uint8_t* scratch)
      : codes_(weights),
        step_bytes_(Codes::kStep / 8 * weights.format->bits),
        begin_(scratch),
        before_(weights.consumed % 8),
        max_(weights.limit - weights.consumed),
        in_(weights.packed + weights.consumed / 8 * weights.format->bits),
        at_(scratch + before_ * kBytes),
        out_(scratch),
        packed_(before_ + max_) {}
  NonzerosAhead(const NonzerosAhead&) = default;
  NonzerosAhead& operator=(const NonzerosAhead& later) {
    in_ = later.in_;
    at_ = later.at_;
    out_ = later.out_;
    packed_ = later.packed_;
    moved_ = later.moved_;
    return *this;
  }

  template <int vectors, bool filled, class Work>
  [[gnu::always_inline]] void next(const uint8_t* mask, __m512i fill, const Work& work) {
    static_assert(vectors <= kMaxVectors);
    if (out_ - at_ < kAhead) unpack();
#pragma GCC unroll 4
    for (int i = 0; i < vectors; ++i) work(i, expand<Code, filled>(mask + i * kMaskBytes<Code>, fill, at_));
  }

  int64_t consumed() const {
    const int64_t count = (moved_ + (at_ - begin_)) / kBytes - before_;
    return count > max_ ? -1 : count;
  }

 private:
  static constexpr int64_t kBytes = sizeof(Code);
  static constexpr int kAhead = 1024, kAtOnce = 512;  // bytes

  // Inlined, since byte stores may alias members.
  [[gnu::always_inline]] void unpack() {
    // Room for what a mask may ask for past the last code.
    constexpr int kMaxBytes = kNonzeroBytes - (kMaxVectors + 1) * kVectorBytes;
    if (packed_ <= 0 && at_ > out_) [[unlikely]]
      moved_ += at_ - out_, at_ = out_;
    if (out_ - begin_ > kMaxBytes - kAtOnce) [[unlikely]]
      rewind();
#pragma GCC unroll 8
    for (int done = 0; done < kAtOnce; done += Codes::kStep * kBytes) {
      if (packed_ <= 0) break;
      prefetch_ahead(in_);
      codes_.unpack(in_, reinterpret_cast<Code*>(out_));
      in_ += step_bytes_;
      out_ += Codes::kStep * kBytes;
      packed_ -= Codes::kStep;
    }
  }

  [[gnu::always_inline]] void rewind() {
    const int64_t by = (at_ - begin_) / kVectorBytes * kVectorBytes;
    for (uint8_t* to = begin_; to + by < out_; to += kVectorBytes) {
      _mm512_storeu_si512(to, _mm512_loadu_si512(to + by));
    }
    at_ -= by;
    out_ -= by;
    moved_ += by;
  }

  const Codes codes_;
  const int64_t step_bytes_;
  uint8_t* const begin_;
  const int64_t before_, max_;
  const uint8_t *in_, *at_;
  uint8_t* out_;
  int64_t packed_, moved_ = 0;  // codes still packed; bytes by which the buffer was moved in total
};

// Codes of less than eight bits, to bytes. `bits`: 0 if only known at run time.
template <int bits>
class Fields {
 public:
  using Code = uint8_t;
  static constexpr int kBits = bits, kStep = kLineCodes;

  explicit Fields(const KPanel& weights) : tables_(kStreamTables[weights.format->bits]) {}

  [[gnu::always_inline]] void unpack(const uint8_t* in, uint8_t* out) const { _mm512_storeu_si512(out, line(in)); }
  [[gnu::always_inline]] __m512i line(const uint8_t* in) const { return unpack_line(tables_, in); }

 private:
  const StreamTables& tables_;
};

// 4-bit codes, two lines per vector. Line provides kBits and line(in), a line as bytes.
template <class Line>
class Nibbles : public Line {
 public:
  using Code = uint8_t;
  static constexpr int kStep = 2 * kLineCodes;

  using Line::Line;

  [[gnu::always_inline]] void unpack(const uint8_t* in, uint8_t* out) const {
    _mm512_storeu_si512(out, this->line(in));
    _mm512_storeu_si512(out + kLineCodes, this->line(in + kVectorBytes / 2));
  }
};

struct LowNibbles {
  static constexpr int kBits = 4;

  explicit LowNibbles(const KPanel&) {}

  // A line; the bits above each code are not cleared.
  [[gnu::always_inline]] static __m512i rough_line(const uint8_t* in) {
    const __m512i pairs = _mm512_cvtepu8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(in)));
    return _mm512_or_si512(pairs, _mm512_slli_epi16(pairs, 4));
  }
  [[gnu::always_inline]] static __m512i line(const uint8_t* in) {
    return _mm512_and_si512(rough_line(in), _mm512_set1_epi8(15));
  }
};
template <>
class Fields<4> : public Nibbles<LowNibbles> {
  using Nibbles::Nibbles;
};

// 4-bit codes to the upper half of a byte.
struct UpperNibbles {
  static constexpr int kBits = 8;

  explicit UpperNibbles(const KPanel&) {}

  [[gnu::always_inline]] static __m512i line(const uint8_t* in) {
    constexpr int kOrAnd = 0xa8;  // (a | b) & c
    const __m512i pairs = _mm512_cvtepu8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(in)));
    return _mm512_ternarylogic_epi32(_mm512_slli_epi16(pairs, 4), _mm512_slli_epi16(pairs, 8),
                                     _mm512_set1_epi8(static_cast<char>(0xf0)), kOrAnd);
  }
};
using HighNibbleFields = Nibbles<UpperNibbles>;

// Calls work<Nonzeros>() with the reader for the format's codes, of at most eight bits; Four unpacks 4-bit codes.
template <class Four = Fields<4>, class Work>
auto with_nonzero_bytes(const KPanel& weights, const Work& work) {
  if (weights.format->bits == 8) return work.template operator()<InPlaceNonzeros<uint8_t>>();
  if (weights.format->bits == 4) return work.template operator()<NonzerosAhead<Four>>();
  return work.template operator()<NonzerosAhead<Fields<0>>>();
}

}  // namespace
}  // namespace tilepress
