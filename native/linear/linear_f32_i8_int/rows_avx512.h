// Two variants with the same results. A few rows: dense 4- and 8-bit codes are multiplied from where they are, sparse
// codes are expanded in registers. Otherwise: the K-panel is decoded to operands, which then are dense 8-bit codes.
//
// 4-bit codes that stand for other integers are looked up, and reordered from 16-bit to 8-bit tiles. vpdpbusd
// multiplies unsigned × signed, so signed operands get an offset of 2^(bits - 1); at the end of a segment, offset ·
// (sum of x) is subtracted. Each limb is a dot product with the same operands.
#pragma once

#include "linear/linear_f32_i8_int/segment_avx512.h"

namespace tilepress {
namespace {

// Codes: how operands are read, a step of kStepRows tile rows at a time. Signed ones get an offset of 2^(kBits - 1).

// XORed with codes of `bits` bits, adds the offset: 2^(bits - 1), or 0 for unsigned codes.
inline __m512i sign_flip(const KPanel& weights, int bits) {
  return _mm512_set1_epi8(static_cast<char>(weights.zeros ? 0 : 1 << (bits - 1)));
}

// Codes in the lower halves of bytes, with the offset.
[[gnu::always_inline]] inline __m512i low_nibbles(__m512i codes, __m512i flip) {
  constexpr int kAndXor = 0x6a;  // (a & b) ^ c
  return _mm512_ternarylogic_epi32(codes, _mm512_set1_epi8(15), flip, kAndXor);
}

// Dense 4-bit codes: two tile rows per vector.
class Dense4 {
 public:
  static constexpr int kBits = 4, kBytes = kStepRows / 2 * kVectorBytes;
  static constexpr bool kLookedUp = false;

  explicit Dense4(const KPanel& weights) : flip_(sign_flip(weights, kBits)) {}

  template <class Rows, class Sums>
  [[gnu::always_inline]] void step(const Rows& x, int64_t input, const uint8_t* packed, Sums& sums) const {
    for (int row = 0; row < kStepRows; row += 2, packed += kVectorBytes) {
      const __m512i pairs = _mm512_loadu_si512(packed);
      prefetch_ahead(packed);
      sums.add(x, input, row, low_nibbles(pairs, flip_));
      sums.add(x, input, row + 1, low_nibbles(_mm512_srli_epi16(pairs, 4), flip_));
    }
  }

 private:
  __m512i flip_;
};

// Dense 8-bit codes, or decoded operands. Decoding subtracted code_offset from unsigned 8-bit codes; the XOR undoes it.
template <bool operands>
class Dense8 {
 public:
  static constexpr int kBits = 8, kBytes = kStepRows * kVectorBytes;
  static constexpr bool kLookedUp = false;

  explicit Dense8(const KPanel& weights)
      : flip_(_mm512_set1_epi8(static_cast<char>(!weights.zeros ? 128
                                                 : operands     ? code_offset(*weights.format)
                                                                : 0))) {}

  template <class Rows, class Sums>
  [[gnu::always_inline]] void step(const Rows& x, int64_t input, const uint8_t* packed, Sums& sums) const {
    for (int row = 0; row < kStepRows; ++row, packed += kVectorBytes) {
      prefetch_ahead(packed);
      sums.add(x, input, row, _mm512_xor_si512(_mm512_loadu_si512(packed), flip_));
    }
  }

 private:
  __m512i flip_;
};

// Order of pairs of codes that turns a line of 16-bit tiles (two rows, two inputs per neuron) into one of 8-bit tiles
// (one row, four inputs).
struct PairsToFours {
  constexpr PairsToFours() : places() {
    for (int i = 0; i < kLineCodes / 2; ++i) places[i] = static_cast<uint16_t>(i / 2 + i % 2 * kBlockNeurons);
  }
  alignas(64) uint16_t places[kLineCodes / 2];
};

// The integers that 4-bit codes stand for, in each 128 bits.
inline __m512i integer_table(const Format& format) {
  return _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(format.integers)));
}

// The same with an offset of 128.
inline __m512i unsigned_table(const Format& format) {
  return _mm512_xor_si512(integer_table(format), _mm512_set1_epi8(static_cast<char>(128)));
}

// vpermb takes half as long as vpermw. It uses the six lowest bits of an index, and the table is repeated, so that
// the bits above a code are ignored.
#if defined(__AVX512VBMI__)
struct BytesToFours {
  constexpr BytesToFours() : places() {
    for (int i = 0; i < kLineCodes; ++i) {
      places[i] = static_cast<uint8_t>(2 * PairsToFours().places[i / 2] + i % 2);
    }
  }
  alignas(64) uint8_t places[kLineCodes];
};
constexpr BytesToFours kBytesToFours;

[[gnu::always_inline]] inline __m512i pairs_to_fours(__m512i line) {
  return _mm512_permutexvar_epi8(_mm512_load_si512(kBytesToFours.places), line);
}
[[gnu::always_inline]] inline __m512i look_up(__m512i codes, __m512i table) {
  return _mm512_permutexvar_epi8(codes, table);
}
#else
constexpr PairsToFours kPairsToFours;

[[gnu::always_inline]] inline __m512i pairs_to_fours(__m512i line) {
  return _mm512_permutexvar_epi16(_mm512_load_si512(kPairsToFours.places), line);
}
[[gnu::always_inline]] inline __m512i look_up(__m512i codes, __m512i table) {
  return _mm512_shuffle_epi8(table, _mm512_and_si512(codes, _mm512_set1_epi8(15)));
}
#endif

// Dense 4-bit codes of 16-bit tiles, looked up in a table with the offset, and reordered two lines at a time.
class DenseTable {
 public:
  static constexpr int kBits = 8, kBytes = Dense4::kBytes;
  static constexpr bool kLookedUp = true;

  explicit DenseTable(const KPanel& weights) : table_(unsigned_table(*weights.format)) {}

  template <class Rows, class Sums>
  [[gnu::always_inline]] void step(const Rows& x, int64_t input, const uint8_t* packed, Sums& sums) const {
    for (int row = 0; row < kStepRows; row += 2, packed += kVectorBytes) {
      const __m512i pairs = pairs_to_fours(_mm512_loadu_si512(packed));
      prefetch_ahead(packed);
      sums.add(x, input, row, look_up(pairs, table_));
      sums.add(x, input, row + 1, look_up(_mm512_srli_epi16(pairs, 4), table_));
    }
  }

 private:
  __m512i table_;
};

template <class Codes, SegmentEnd end, int rows, int limbs>
void dense_rows(const KPanel& weights, const IntegerActivations& x, const uint8_t* packed, int64_t row, float* out) {
  const Codes codes(weights);
  const RowAddresses<rows, limbs> from(x, row);
  Totals<end, rows> accumulators(weights, x, row);
  for_segments(weights, x, [&](const Segment& segment) {
    Sums<rows, limbs> sums;
    sums.clear();
    for_steps<end>(segment, [&](int64_t input) __attribute__((always_inline)) {
      codes.step(from, input, packed, sums);
      packed += Codes::kBytes;
    });
    accumulators.add(segment, Codes::kBits - 1, sums);
  });
  accumulators.add_to(out);
}

// Calls work<rows, limbs>(row, out) for all rows, several at a time, which share each load of weights. Activations of
// looked-up codes were floats, and have two or three limbs.
template <class Codes, class Work>
void for_row_batches(const IntegerActivations& x, float* out, const Work& work) {
  const auto run_limbs = [&]<int limbs>() {
    int64_t row = 0;
    const auto run = [&]<int rows>() {
      for (; row + rows <= x.batch; row += rows) {
        work.template operator()<rows, limbs>(row, out + row * kBlockNeurons);
      }
    };
    run.template operator()<8 / limbs>();
    if constexpr (limbs == 1) run.template operator()<4>();
    if constexpr (limbs < 3) run.template operator()<3>(), run.template operator()<2>();
    run.template operator()<1>();
  };
  if constexpr (!Codes::kLookedUp) {
    if (x.limb_count == 1) run_limbs.template operator()<1>();
  }
  if (x.limb_count == 2) run_limbs.template operator()<2>();
  if (x.limb_count == 3) run_limbs.template operator()<3>();
}

template <class Codes>
int64_t dense(const KPanel& weights, const IntegerActivations& x, const uint8_t* packed, float* out) {
  with_segment_end<Codes>(weights, x, [&]<SegmentEnd end>() {
    for_row_batches<Codes>(x, out, [&]<int rows, int limbs>(int64_t row, float* to) {
      dense_rows<Codes, end, rows, limbs>(weights, x, packed, row, to);
    });
  });
  return 0;
}

// Sparse. Codes: a reader of nonzeros_avx512.h; kLookedUp: it gives looked-up integers of 16-bit tiles; kUnsigned: it
// has applied the offset.
template <class Codes, SegmentEnd end, int rows, int limbs>
int64_t sparse_rows(const KPanel& weights, const IntegerActivations& x, int64_t row, float* out, uint8_t* scratch) {
  constexpr bool zeros = end == SegmentEnd::zeros;
  const int bits = Codes::kBits ? Codes::kBits : weights.format->bits;
  const __m512i flip = sign_flip(weights, bits);
  const RowAddresses<rows, limbs> from(x, row);
  const uint8_t* mask = weights.mask;
  Codes codes(weights, scratch);
  Totals<end, rows> accumulators(weights, x, row);
  for_segments(weights, x, [&](const Segment& segment) {
    const __m512i fill = zeros ? dropped(weights, segment.group) : flip;
    Sums<rows, limbs> sums;
    sums.clear();
    for_steps<end>(segment, [&](int64_t input) __attribute__((always_inline)) {
      prefetch_ahead(mask);
      codes.template next<kStepRows, zeros || Codes::kUnsigned>(
          mask, fill, [&](int tile_row, __m512i expanded) __attribute__((always_inline)) {
            const __m512i placed = Codes::kLookedUp ? pairs_to_fours(expanded) : expanded;
            sums.add(from, input, tile_row, Codes::kUnsigned ? placed : _mm512_xor_si512(placed, flip));
          });
      mask += kStepRows * kVectorBytes / 8;
    });
    accumulators.add(segment, bits - 1, sums);
  });
  accumulators.add_to(out);
  return codes.consumed();
}

template <class Codes>
int64_t sparse(const KPanel& weights, const IntegerActivations& x, float* out, uint8_t* scratch) {
  int64_t consumed = 0;
  with_segment_end<Codes>(weights, x, [&]<SegmentEnd end>() {
    for_row_batches<Codes>(x, out, [&]<int rows, int limbs>(int64_t row, float* to) {
      consumed = sparse_rows<Codes, end, rows, limbs>(weights, x, row, to, scratch);
    });
  });
  return consumed;
}

// Supports all weights. Simd: see unpack_block.h.
template <class Simd>
int64_t linear_any(const KPanel& weights, const IntegerActivations& x, float* out, uint8_t* scratch) {
  const int bits = weights.format->bits;
  if (!weights.mask && weights.format->integers) return dense<DenseTable>(weights, x, weights.packed, out);
  if (!weights.mask && bits == 4) return dense<Dense4>(weights, x, weights.packed, out);
  if (!weights.mask && bits == 8) return dense<Dense8<false>>(weights, x, weights.packed, out);
  uint8_t* operands = operands_in(weights, scratch);
  const int64_t consumed = decode_operands<Simd>(weights, operands, scratch);
  if (consumed >= 0) dense<Dense8<true>>(weights, x, operands, out);
  return consumed;
}

}  // namespace
}  // namespace tilepress
