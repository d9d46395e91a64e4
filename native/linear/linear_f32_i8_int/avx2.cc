// Codes of at most seven bits get an offset that makes them unsigned, for vpmaddubsw (unsigned × signed): the sum of
// two products fits int16, and with fewer bits several sums do. At the end of a segment, offset · (sum of x) is
// subtracted. With eight bits vpmaddubsw would saturate, so both sides are widened to int16. Dense 4-bit and signed
// 8-bit codes are multiplied from where they are, all others from the decoded K-panel. Each limb is a dot product with
// the same operands.
#include "linear/int8_k_panel.h"
#include "pack/unpack_avx2.h"

namespace tilepress {
namespace {

constexpr int kSides = 2;       // vectors of eight neurons per block
constexpr int kSideBytes = 32;  // per tile row
constexpr int kSideNeurons = 8;
constexpr int kMaxLines = 4;  // lines of activations at a time: as registers allow

inline __m256i load(const uint8_t* from) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)); }

// Broadcasts four inputs to every neuron.
inline __m256i broadcast_inputs(const uint8_t* x) {
  int32_t four;
  std::memcpy(&four, x, 4);
  return _mm256_set1_epi32(four);
}

// Addresses of a few lines of x, widened if Codes::kXBytes is 2.
template <int rows, int limbs>
struct Lines {
  const uint8_t* line[rows][limbs];
};

// Keeps the compiler from reassociating sums into trees, for which there are not enough registers.
[[gnu::always_inline]] inline void keep_order(__m256i& sum) { asm("" : "+x"(sum)); }

template <int rows, int limbs>
struct Sums {
  __m256i sums[rows][limbs][kSides];

  void clear() {
    for (int i = 0; i < rows * limbs * kSides; ++i) {
      sums[i / (limbs * kSides)][i / kSides % limbs][i % kSides] = _mm256_setzero_si256();
    }
  }

  [[gnu::always_inline]] void add_pairs(int row, int limb, int side, __m256i pairs) {
    __m256i& sum = sums[row][limb][side];
    sum = _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
    keep_order(sum);
  }

  // From neurons {0 … 3, 8 … 11} and {4 … 7, 12 … 15} to {0 … 7} and {8 … 15}.
  [[gnu::always_inline]] void restore_order() {
    for (auto& row : sums) {
      for (auto& [low, high] : row) {
        const __m256i first = _mm256_permute2x128_si256(low, high, 0x20);
        high = _mm256_permute2x128_si256(low, high, 0x31);
        low = first;
      }
    }
  }

  __m256i combine_limbs(int row, int side, __m128i limb_bits) const {
    __m256i sum = sums[row][0][side];
    for (int limb = 1; limb < limbs; ++limb) {
      sum = _mm256_add_epi32(_mm256_sll_epi32(sum, limb_bits), sums[row][limb][side]);
    }
    return sum;
  }
};

// Codes: how operands are read. kBytes per step; kXBytes per input of x; kInterleaved: sums need restore_order();
// offset_vector(format, offset): an argument of step(packed, offset_vector, x, position in x, sums).

// A step for unsigned operands of at most seven bits. Products of Codes::kInt16Rows tile rows are summed in int16.
template <class Codes, int rows, int limbs>
[[gnu::always_inline]] inline void narrow_step(const uint8_t* packed, __m256i offsets, const Lines<rows, limbs>& x,
                                               int64_t position, Sums<rows, limbs>& sums) {
  __m256i parts[rows][limbs][kSides] = {};
#pragma GCC unroll 4
  for (int tile_row = 0; tile_row < kStepRows; ++tile_row) {
    const bool first = tile_row % Codes::kInt16Rows == 0, last = (tile_row + 1) % Codes::kInt16Rows == 0;
    __m256i operands[kSides];
    for (int side = 0; side < kSides; ++side) operands[side] = Codes::operands(packed, side, tile_row, offsets);
#pragma GCC unroll 4
    for (int i = 0; i < rows * limbs; ++i) {
      const int row = i / limbs, limb = i % limbs;
      const __m256i four = broadcast_inputs(x.line[row][limb] + position + 4 * tile_row);
      for (int side = 0; side < kSides; ++side) {
        __m256i& part = parts[row][limb][side];
        const __m256i products = _mm256_maddubs_epi16(operands[side], four);
        part = first ? products : _mm256_add_epi16(part, products);
        keep_order(part);
        if (last) sums.add_pairs(row, limb, side, part);
      }
    }
  }
}

// Dense 4-bit codes: 16 inputs are two vectors of 64 bytes, with two tile rows each.
struct Dense4 {
  static constexpr int kBytes = 2 * kVectorBytes, kXBytes = 1, kInt16Rows = 4;
  static constexpr bool kInterleaved = false;

  // Flipping the highest bit of a signed code adds 8.
  static __m256i offset_vector(const Format&, int offset) { return _mm256_set1_epi8(static_cast<char>(offset * 0x11)); }

  static __m256i operands(const uint8_t* packed, int side, int tile_row, __m256i offsets) {
    const __m256i pairs = _mm256_xor_si256(load(packed + tile_row / 2 * kVectorBytes + side * kSideBytes), offsets);
    return _mm256_and_si256(tile_row % 2 ? _mm256_srli_epi16(pairs, 4) : pairs, _mm256_set1_epi8(15));
  }

  template <int rows, int limbs>
  [[gnu::always_inline]] static void step(const uint8_t* packed, __m256i offsets, const Lines<rows, limbs>& x,
                                          int64_t position, Sums<rows, limbs>& sums) {
    narrow_step<Dense4>(packed, offsets, x, position, sums);
  }
};

// 4-bit codes of 16-bit tiles, looked up as integers of at most five bits. Two rows with two inputs per neuron are
// interleaved within 128 bits: one side then has neurons 0 … 3 and 8 … 11, the other the rest.
struct Table4 {
  static constexpr int kBytes = Dense4::kBytes, kXBytes = 1, kInt16Rows = 4;
  static constexpr bool kInterleaved = true;

  // The table, with the offset added.
  static __m256i offset_vector(const Format& format, int offset) {
    const __m128i table = _mm_loadu_si128(reinterpret_cast<const __m128i*>(format.integers));
    return _mm256_add_epi8(_mm256_broadcastsi128_si256(table), _mm256_set1_epi8(static_cast<char>(offset)));
  }

  static __m256i operands(const uint8_t* packed, int side, int tile_row, __m256i table) {
    packed += tile_row / 2 * kVectorBytes;
    const __m256i first = load(packed), second = load(packed + kSideBytes);
    const __m256i pairs = side ? _mm256_unpackhi_epi16(first, second) : _mm256_unpacklo_epi16(first, second);
    const __m256i codes = _mm256_and_si256(tile_row % 2 ? _mm256_srli_epi16(pairs, 4) : pairs, _mm256_set1_epi8(15));
    return _mm256_shuffle_epi8(table, codes);
  }

  template <int rows, int limbs>
  [[gnu::always_inline]] static void step(const uint8_t* packed, __m256i table, const Lines<rows, limbs>& x,
                                          int64_t position, Sums<rows, limbs>& sums) {
    narrow_step<Table4>(packed, table, x, position, sums);
  }
};

// Decoded operands of at most seven bits. 4 · 2 · 31 · 128, 2 · 2 · 63 · 128 and 2 · 127 · 128 are below 2^15.
template <int int16_rows>
struct Narrow {
  static constexpr int kBytes = 4 * kVectorBytes, kXBytes = 1, kInt16Rows = int16_rows;
  static constexpr bool kInterleaved = false;

  static __m256i offset_vector(const Format&, int offset) { return _mm256_set1_epi8(static_cast<char>(offset)); }

  static __m256i operands(const uint8_t* packed, int side, int tile_row, __m256i offsets) {
    return _mm256_add_epi8(load(packed + tile_row * kVectorBytes + side * kSideBytes), offsets);
  }

  template <int rows, int limbs>
  [[gnu::always_inline]] static void step(const uint8_t* packed, __m256i offsets, const Lines<rows, limbs>& x,
                                          int64_t position, Sums<rows, limbs>& sums) {
    narrow_step<Narrow>(packed, offsets, x, position, sums);
  }
};

// Even and odd bytes as int16. A neuron's four inputs stay in its own 32-bit lane.
inline __m256i evens(__m256i bytes) { return _mm256_srai_epi16(_mm256_slli_epi16(bytes, 8), 8); }
inline __m256i odds(__m256i bytes) { return _mm256_srai_epi16(bytes, 8); }

// Signed 8-bit operands. x is int16 from widen(): the even inputs of each 16, then the odd ones.
struct Wide {
  static constexpr int kBytes = 4 * kVectorBytes, kXBytes = 2;
  static constexpr bool kInterleaved = false;

  static __m256i offset_vector(const Format&, int) { return _mm256_setzero_si256(); }

  template <int rows, int limbs>
  [[gnu::always_inline]] static void step(const uint8_t* packed, __m256i, const Lines<rows, limbs>& x, int64_t position,
                                          Sums<rows, limbs>& sums) {
#pragma GCC unroll 4
    for (int tile_row = 0; tile_row < kStepRows; ++tile_row, packed += kVectorBytes) {
      const __m256i sides[kSides] = {load(packed), load(packed + kSideBytes)};
      const __m256i even[kSides] = {evens(sides[0]), evens(sides[1])}, odd[kSides] = {odds(sides[0]), odds(sides[1])};
      for (int i = 0; i < rows * limbs; ++i) {
        const uint8_t* from = x.line[i / limbs][i % limbs] + position + 4 * tile_row;
        const __m256i even_x = broadcast_inputs(from), odd_x = broadcast_inputs(from + kStepInputs);
        for (int side = 0; side < kSides; ++side) {
          __m256i& sum = sums.sums[i / limbs][i % limbs][side];
          sum = _mm256_add_epi32(sum, _mm256_madd_epi16(even[side], even_x));
          sum = _mm256_add_epi32(sum, _mm256_madd_epi16(odd[side], odd_x));
          keep_order(sum);
        }
      }
    }
  }
};

inline void widen(const int8_t* x, int64_t inputs, uint8_t* to) {
  for (int64_t i = 0; i < inputs; i += kStepInputs, to += 2 * kStepInputs) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(x + i));
    const __m256i twice = _mm256_broadcastsi128_si256(bytes);
    const __m256i both = _mm256_blend_epi32(evens(twice), odds(twice), 0xf0);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), both);
  }
}

template <class Codes, int rows, int limbs>
Lines<rows, limbs> make_lines(const KPanel& weights, const IntegerActivations& x, int64_t row, uint8_t* scratch) {
  Lines<rows, limbs> lines;
  for (int i = 0; i < rows * limbs; ++i) {
    const int8_t* from = x.limbs[i % limbs] + (row + i / limbs) * x.stride;
    const uint8_t*& line = lines.line[i / limbs][i % limbs];
    line = reinterpret_cast<const uint8_t*>(from);
    if constexpr (Codes::kXBytes == 2) {
      line = scratch;
      widen(from, weights.inputs, scratch);
      scratch += 2 * weights.tiles * kTileInputs;
    }
  }
  return lines;
}

// Scales of eight neurons as float32.
inline __m256 side_scales(const KPanel& weights, int64_t group, int side) {
  const int64_t at = group * kBlockNeurons + side * kSideNeurons;
  if (weights.format->scale == ScaleType::bf16) {
    const auto* halves = static_cast<const uint16_t*>(weights.scales) + at;
    const __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(halves)));
    return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
  }
  if (weights.format->scale == ScaleType::fp16) {
    const auto* halves = static_cast<const uint16_t*>(weights.scales) + at;
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(halves)));
  }
  if (weights.format->scale == ScaleType::fp32) {
    return _mm256_loadu_ps(static_cast<const float*>(weights.scales) + at);
  }
  if (weights.format->scale == ScaleType::e8m0) {
    const auto* codes = reinterpret_cast<const __m128i*>(static_cast<const uint8_t*>(weights.scales) + at);
    const __m256i powers = _mm256_slli_epi32(_mm256_cvtepu8_epi32(_mm_loadl_epi64(codes)), 23);
    const __m256i none = _mm256_cmpeq_epi32(powers, _mm256_set1_epi32(0x7f800000));
    const __m256i scales = _mm256_max_epu32(powers, _mm256_set1_epi32(1 << 22));  // code 0 is subnormal
    return _mm256_castsi256_ps(_mm256_or_si256(scales, _mm256_srli_epi32(none, 9)));
  }
  float scales[kSideNeurons];
  for (int i = 0; i < kSideNeurons; ++i) scales[i] = load_scale(weights.format->scale, weights.scales, at + i);
  return _mm256_loadu_ps(scales);
}

// Zero points of eight neurons, in the offset of their operands; without zero points, `offset` for each.
inline __m256i side_zeros_or(const KPanel& weights, int64_t group, int side, int offset) {
  if (!weights.zeros) return _mm256_set1_epi32(offset);
  const uint8_t* zeros = weights.zeros + group * kBlockNeurons + side * kSideNeurons;
  const __m256i wide = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(zeros)));
  return _mm256_sub_epi32(wide, _mm256_set1_epi32(code_offset(*weights.format)));
}

template <int rows>
struct Totals {
  __m256 totals[rows][kSides];

  Totals() {
    for (int i = 0; i < rows * kSides; ++i) totals[i / kSides][i % kSides] = _mm256_setzero_ps();
  }

  template <class Sums>
  [[gnu::always_inline]] void add(const KPanel& weights, const IntegerActivations& x, const Segment& segment,
                                  int64_t first_row, int offset, const Sums& sums) {
    const __m128i shift = _mm_cvtsi32_si128(zero_shift(*weights.format));
    const __m128i limb_bits = _mm_cvtsi32_si128(x.limb_bits);
    for (int side = 0; side < kSides; ++side) {
      const __m256 scales = side_scales(weights, segment.group, side);
      const __m256i zeros = side_zeros_or(weights, segment.group, side, offset);
      for (int row = 0; row < rows; ++row) {
        const int64_t at = (first_row + row) * x.segment_stride + segment.index;
        const __m256i subtract = _mm256_mullo_epi32(zeros, _mm256_set1_epi32(x.sums[at]));
        const __m256i codes = _mm256_sll_epi32(sums.combine_limbs(row, side, limb_bits), shift);
        __m256 value = _mm256_cvtepi32_ps(_mm256_sub_epi32(codes, subtract));
        if (x.units) value = _mm256_mul_ps(value, _mm256_set1_ps(x.units[at]));
        totals[row][side] = _mm256_fmadd_ps(value, scales, totals[row][side]);
      }
    }
  }

  void add_to(float* out) const {
    for (int i = 0; i < rows * kSides; ++i, out += kSideNeurons) {
      _mm256_storeu_ps(out, _mm256_add_ps(_mm256_loadu_ps(out), totals[i / kSides][i % kSides]));
    }
  }
};

struct Operands {
  const uint8_t* packed;
  int offset;        // added to signed operands to make them unsigned
  uint8_t* scratch;  // for widened x
};

template <class Codes, int rows, int limbs>
void multiply_rows(const KPanel& weights, const IntegerActivations& x, const Operands& operands, int64_t row,
                   float* out) {
  constexpr int kAhead = 1024;  // bytes; further ahead than the hardware prefetcher
  const auto lines = make_lines<Codes, rows, limbs>(weights, x, row, operands.scratch);
  const __m256i offsets = Codes::offset_vector(*weights.format, operands.offset);
  const uint8_t* packed = operands.packed;
  Totals<rows> accumulators;
  for_segments(weights, x, [&](const Segment& segment) {
    Sums<rows, limbs> sums;
    sums.clear();
    for (int64_t input = segment.begin; input < segment.end; input += kStepInputs, packed += Codes::kBytes) {
      for (int line = 0; line < Codes::kBytes; line += kVectorBytes) __builtin_prefetch(packed + kAhead + line);
      Codes::step(packed, offsets, lines, input * Codes::kXBytes, sums);
    }
    if constexpr (Codes::kInterleaved) sums.restore_order();
    accumulators.add(weights, x, segment, row, operands.offset, sums);
  });
  accumulators.add_to(out);
}

// All rows of x from `row` on: `rows` at a time, as registers allow, then half as many, and so on.
template <class Codes, int rows, int limbs>
void multiply_from(const KPanel& weights, const IntegerActivations& x, const Operands& operands, int64_t row,
                   float* out) {
  for (; row + rows <= x.batch; row += rows) {
    multiply_rows<Codes, rows, limbs>(weights, x, operands, row, out + row * kBlockNeurons);
  }
  if constexpr (rows > 1) multiply_from<Codes, rows / 2, limbs>(weights, x, operands, row, out);
}

// Bits of the integers that 4-bit codes stand for.
int integer_bits(const Format& format) {
  int bits = 1;
  for (int code = 0; code < 16; ++code) {
    const int value = format.integers[code];
    while (value >= 1 << (bits - 1) || value < -(1 << (bits - 1))) ++bits;
  }
  return bits;
}

// Returns `consumed`.
template <class Codes>
int64_t multiply(const KPanel& weights, const IntegerActivations& x, const Operands& operands, int64_t consumed,
                 float* out) {
  if constexpr (!std::is_same_v<Codes, Table4>) {  // its activations always have several limbs
    if (x.limb_count == 1) multiply_from<Codes, kMaxLines, 1>(weights, x, operands, 0, out);
  }
  if (x.limb_count == 2) multiply_from<Codes, kMaxLines / 2, 2>(weights, x, operands, 0, out);
  if (x.limb_count == 3) multiply_from<Codes, kMaxLines / 3, 3>(weights, x, operands, 0, out);
  return consumed;
}

int64_t linear_f32_i8_int(const KPanel& weights, const IntegerActivations& x, float* out, uint8_t* scratch) {
  const bool looked_up = weights.format->integers;
  const int bits = looked_up ? integer_bits(*weights.format) : weights.format->bits;
  const int offset = weights.zeros || bits == 8 ? 0 : 1 << (bits - 1);
  const Operands packed = {weights.packed, offset, scratch};
  if (!weights.mask && looked_up && bits <= 5) return multiply<Table4>(weights, x, packed, 0, out);
  if (!weights.mask && !looked_up && bits == 4) return multiply<Dense4>(weights, x, packed, 0, out);
  if (!weights.mask && !looked_up && bits == 8 && !weights.zeros) return multiply<Wide>(weights, x, packed, 0, out);
  uint8_t* decoded = operands_in(weights, scratch);
  const int64_t consumed = decode_operands<Avx2>(weights, decoded, scratch);
  if (consumed < 0) return consumed;
  const Operands operands = {decoded, offset, scratch};  // x may overwrite the non-zeros
  if (bits == 8) return multiply<Wide>(weights, x, operands, consumed, out);
  if (bits == 7) return multiply<Narrow<1>>(weights, x, operands, consumed, out);
  if (bits == 6) return multiply<Narrow<2>>(weights, x, operands, consumed, out);
  return multiply<Narrow<4>>(weights, x, operands, consumed, out);
}

TILEPRESS_KERNEL(linear_f32_i8_int);

}  // namespace
}  // namespace tilepress
