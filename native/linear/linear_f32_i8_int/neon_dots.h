#pragma once

// Two ways, with the same sums. A few rows of activations: dense 4- and 8-bit codes straight from their bytes, sparse
// codes expanded in registers. Everything else: the K-panel decoded to operands, which then are dense 8-bit codes.
#include "linear/linear_f32_i8_int/neon_groups.h"
#include "linear/linear_f32_i8_int/neon_rows.h"
#include "pack/unpack_neon.h"

namespace tilepress {
namespace {

// A sum of products, as an integer, may be started at the bits of a float whose last place is 1 (or 1/16, or 16). Read
// as a float it then is that float plus the sum, and one subtraction converts it: less work than a conversion, which
// takes one of the two vector pipes for two cycles. Good for sums below 2^22.
template <int shift>
constexpr float kAnchor = shift > 0   ? kSumStart
                          : shift < 0 ? 0x1.8p27f
                                      : 0x1.8p23f;
template <int shift>
constexpr float kAnchors[4] = {kAnchor<shift>, kAnchor<shift>, kAnchor<shift>, kAnchor<shift>};
bool fits_anchor(const IntegerActivations& x) { return x.segment <= 128 && x.bits <= 9; }  // 255 * 128 * 128 < 2^22

// The lines of bytes that some rows of activations are: a line for each limb of each row, or five for four rows.
template <int rows, int limbs>
struct Limbs {
  static constexpr int kRows = rows, kLines = rows * limbs, kLimbs = limbs;
  static const int8_t* line(const IntegerActivations& x, int64_t row, int index) {
    return x.limbs[index % limbs] + (row + index / limbs) * x.stride;
  }
};

struct NineBitLines {
  static constexpr int kRows = kNineBitRows, kLines = kNineBitLines, kLimbs = 1;
  static const int8_t* line(const IntegerActivations& x, int64_t row, int index) {
    return x.limbs[0] + (row / kRows * kLines + index) * x.stride;
  }
};

// Sums of each line with some quarters of a block. Of several lines and `dense` weights starts are loaded, vector pipes
// being busier there than loads are, and those of whole rows, in products sixteen times too large, have their units
// seen to.
template <class Lines, int quarters, int shift, bool anchored, bool dense>
struct Sums {
  static constexpr int kQuarters = quarters;
  static constexpr bool kAnchored = anchored, kNineBitLines = std::is_same_v<Lines, NineBitLines>;
  static constexpr bool kLoaded = dense && Lines::kLines > 1;
  static constexpr bool kInUnits = kLoaded && anchored && shift == 4 && !kNineBitLines && Lines::kLimbs == 1;
  int32x4_t of[Lines::kLines][quarters];
  const float* starts;
  int64_t start_stride;
  int32x4_t limb_bits;

  [[gnu::always_inline]] Sums(const IntegerActivations& x, int64_t row, int64_t segment)
      : starts(kInUnits ? x.starts + 4 * (row * x.segment_stride + segment) : kAnchors<shift>),
        start_stride(kInUnits ? 4 * x.segment_stride : 0),
        limb_bits(vdupq_n_s32(x.limb_bits)) {
    unrolled<Lines::kLines * quarters>([&]<int i>() __attribute__((always_inline)) {
      constexpr int kLine = i / quarters;
      constexpr bool kFromZero = !anchored || kLine % Lines::kLimbs != Lines::kLimbs - 1;
      of[kLine][i % quarters] = kFromZero ? vdupq_n_s32(0)
                                : kLoaded ? load_start<i>(start_of(kLine), segment)
                                          : vreinterpretq_s32_f32(vdupq_n_f32(kAnchor<shift>));
    });
  }

  const float* start_of(int line) const { return starts + line * start_stride; }

  template <int lane>
  [[gnu::always_inline]] void add(int quarter, int8x16_t operands, const int8x16_t (&x)[Lines::kLines]) {
    unrolled<Lines::kLines>([&]<int line>() __attribute__((always_inline)) {
      of[line][quarter] = vdotq_laneq_s32(of[line][quarter], operands, x[line], lane);
    });
  }

  [[gnu::always_inline]] int32x4_t whole(int row, int quarter) const {
    if constexpr (kNineBitLines) return vmlaq_n_s32(of[row][quarter], of[row + 1][quarter], kNineBitFactor);
    int32x4_t sum = of[row * Lines::kLimbs][quarter];
    for (int limb = 1; limb < Lines::kLimbs; ++limb) {
      sum = vaddq_s32(of[row * Lines::kLimbs + limb][quarter], vshlq_s32(sum, limb_bits));
    }
    return sum;
  }

  [[gnu::always_inline]] float32x4_t value(int row, int quarter) const {
    if constexpr (kInUnits) {
      return vsubq_f32(vreinterpretq_f32_s32(of[row][quarter]), vld1q_f32(start_of(row)));
    } else if constexpr (kNineBitLines && anchored) {
      return vfmaq_n_f32(to_float(of[row][quarter]), to_float(of[row + 1][quarter]), kNineBitFactor);
    }
    return to_float(whole(row, quarter));
  }

  static float32x4_t to_float(int32x4_t dot) {
    if constexpr (anchored) return vsubq_f32(vreinterpretq_f32_s32(dot), vdupq_n_f32(kAnchor<shift>));
    if constexpr (shift > 0) return vcvtq_n_f32_s32(dot, shift);
    return vcvtq_f32_s32(dot);
  }
};

template <class Lines>
[[gnu::always_inline]] inline void load_x(const IntegerActivations& x, int64_t row, int64_t input,
                                          int8x16_t (&to)[Lines::kLines]) {
  for (int line = 0; line < Lines::kLines; ++line) to[line] = vld1q_s8(Lines::line(x, row, line) + input);
}

// Dense 8-bit operands, `near` in a cache, or codes that are their own operands. With zero points to take off, sums can
// leave the range of anchors on the way.
template <bool zero_points, bool near = true>
struct Dense8 : AsTheyAre {
  static constexpr int kBytes = 4 * kVectorBytes, kShift = 0;
  static constexpr bool kNear = near;
  static constexpr bool kZeroPoints = zero_points, kAnchors = !zero_points;
  using AsTheyAre::AsTheyAre;

  template <class Sums, class X>
  [[gnu::always_inline]] static void step(const uint8_t* packed, const X& x, Sums& sums) {
    const auto* operands = reinterpret_cast<const int8_t*>(packed);
    const auto tile_row = [&]<int lane>() {
      for (int i = 0; i < Sums::kQuarters; ++i) {
        sums.template add<lane>(i, vld1q_s8(operands + lane * kVectorBytes + 16 * i), x);
      }
    };
    tile_row.template operator()<0>();
    tile_row.template operator()<1>();
    tile_row.template operator()<2>();
    tile_row.template operator()<3>();
  }
};

// What dense 4-bit codes are taken apart to, kept for many rows.
template <bool negative>
struct Halved4 : Dense4<negative> {
  static constexpr bool kNear = true;
  static constexpr int kBytes = Dense8<false>::kBytes;
  using Dense4<negative>::Dense4;

  template <class Sums, class X>
  [[gnu::always_inline]] static void step(const uint8_t* packed, const X& x, Sums& sums) {
    Dense8<false>::step(packed, x, sums);
  }

  static void halve(const uint8_t* packed, int64_t tiles, uint8_t* operands) {
    for (int64_t row = 0; row < tiles * kBlockNeurons; row += 2, operands += 2 * kVectorBytes) {
      for (int i = 0; i < kVectorBytes; i += 16, packed += 16) {
        const uint8x16_t pairs = vld1q_u8(packed);
        vst1q_u8(operands + i, vreinterpretq_u8_s8(Dense4<negative>::low(pairs)));
        vst1q_u8(operands + kVectorBytes + i, vreinterpretq_u8_s8(Dense4<negative>::high(pairs)));
      }
    }
  }
};

// Dense 4-bit codes of 16-bit tiles, looked up. Two lines, one in low halves of bytes and one in high ones, have two
// rows of two inputs of each neuron; together they are one with four.
class Table4 {
 public:
  static constexpr int kBytes = 2 * kVectorBytes, kQuarterBytes = 8, kShift = 0;
  static constexpr bool kNear = false;
  static constexpr bool kZeroPoints = false, kAnchors = false;

  explicit Table4(const Format& format) : table_(vld1q_s8(format.integers)) {}

  template <class Sums, class X>
  [[gnu::always_inline]] void step(const uint8_t* packed, const X& x, Sums& sums) const {
    two_lines<0>(packed, x, sums);
    two_lines<2>(packed + kVectorBytes, x, sums);
  }

 private:
  template <int lane, class Sums, class X>
  [[gnu::always_inline]] void two_lines(const uint8_t* packed, const X& x, Sums& sums) const {
    for (int half = 0; half < Sums::kQuarters / 2; ++half) {
      const uint16x8_t first = vreinterpretq_u16_u8(vld1q_u8(packed + 16 * half));
      const uint16x8_t second = vreinterpretq_u16_u8(vld1q_u8(packed + 32 + 16 * half));
      add<lane>(2 * half, vreinterpretq_u8_u16(vzip1q_u16(first, second)), x, sums);
      add<lane>(2 * half + 1, vreinterpretq_u8_u16(vzip2q_u16(first, second)), x, sums);
    }
  }

  template <int lane, class Sums, class X>
  [[gnu::always_inline]] void add(int quarter, uint8x16_t pairs, const X& x, Sums& sums) const {
    sums.template add<lane>(quarter, vqtbl1q_s8(table_, vandq_u8(pairs, vdupq_n_u8(15))), x);
    sums.template add<lane + 1>(quarter, vqtbl1q_s8(table_, vshrq_n_u8(pairs, 4)), x);
  }

  int8x16_t table_;
};

// Lines, or rows of them, above which expanding anew for every few costs more than keeping what was expanded.
constexpr int64_t kFewRows = 4, kFewLookedUp = 2;
constexpr int kAhead = 512;  // bytes to prefetch; hides what the hardware's own prefetching leaves

// From quarter `first` on as many as there are registers for. `group`: of inputs, where codes have a scale for each so
// many and activations too, and no last one is shorter; or 0.
template <class Codes, class Scales, class Lines, bool units, bool anchored, int group, int first = 0>
void dense_rows(const KPanel& weights, const IntegerActivations& x, const uint8_t* codes, int64_t row, float* out) {
  constexpr bool kOnce = !units && Codes::kShift == 0 && !Codes::kNear;  // few segments, and codes from memory
  constexpr int kHere = Lines::kLines < 4 || kOnce ? kQuarters : kQuarters / 2;
  using Here = Sums<Lines, kHere, Codes::kShift, anchored, true>;
  Totals<Lines::kRows, kHere, first> accumulators;
  const Codes taken_apart(*weights.format);
  const uint8_t* packed = codes;
  const int8_t* lines[Lines::kLines];
  for (int line = 0; line < Lines::kLines; ++line) lines[line] = Lines::line(x, row, line);
  const auto multiply = [&](const Segment& segment) __attribute__((always_inline)) {
    Here sums(x, row, segment.index);
    const auto step = [&](int64_t input) __attribute__((always_inline)) {
      int8x16_t lanes[Lines::kLines];
      for (int line = 0; line < Lines::kLines; ++line) lanes[line] = vld1q_s8(lines[line] + input);
      if constexpr (!Codes::kNear) {
        for (int line = 0; line < Codes::kBytes; line += kVectorBytes) __builtin_prefetch(packed + kAhead + line);
      }
      taken_apart.step(packed + Codes::kQuarterBytes * first, lanes, sums);
      packed += Codes::kBytes;
    };
    if constexpr (group > 0) {
      for (int input = 0; input < group; input += kStepInputs) step(segment.begin + input);
    } else {
      for (int64_t input = segment.begin; input < segment.end; input += kStepInputs) step(input);
    }
    accumulators.template add<Codes::kZeroPoints, units, Scales>(weights, x, segment, row, sums);
  };
  if constexpr (group > 0) {
    const int64_t before = weights.first / group;
    for (int64_t index = 0; index < weights.inputs / group; ++index) {
      multiply(Segment{index, index * group, (index + 1) * group, before + index});
    }
  } else {
    for_segments(weights, x, multiply);
  }
  accumulators.add_to(out, x.batch - row);
  if constexpr (first + kHere < kQuarters) {
    dense_rows<Codes, Scales, Lines, units, anchored, group, first + kHere>(weights, x, codes, row, out);
  }
}

// The four vectors of a line of 16-bit tiles as those of a row of 8-bit ones.
[[gnu::always_inline]] inline void pairs_to_fours(int8x16_t (&line)[kQuarters]) {
  const auto words = [&](int i) { return vreinterpretq_s16_s8(line[i]); };
  const int16x8_t fours[kQuarters] = {vzip1q_s16(words(0), words(2)), vzip2q_s16(words(0), words(2)),
                                      vzip1q_s16(words(1), words(3)), vzip2q_s16(words(1), words(3))};
  for (int i = 0; i < kQuarters; ++i) line[i] = vreinterpretq_s8_s16(fours[i]);
}

// Operands, 2^shift times too large, expanded a tile row at a time; `pairs`: of 16-bit tiles. Returns how many it took,
// or -1 where that is more than there are; it never reads more than a vector past those.
template <class Scales, int shift, bool zero_points, bool pairs, class Lines, bool units, bool anchored>
int64_t sparse_rows(const KPanel& weights, const IntegerActivations& x, const Nonzeros& operands, int64_t row,
                    float* out) {
  const uint8_t *mask = weights.mask, *nonzeros = operands.codes, *end = nonzeros + operands.count;
  bool over = false;
  using All = Sums<Lines, kQuarters, shift, anchored, false>;
  Totals<Lines::kRows> accumulators;
  for_segments(weights, x, [&](const Segment& segment) __attribute__((always_inline)) {
    All sums(x, row, segment.index);
    uint8x16_t zeros[kQuarters] = {};
    if constexpr (zero_points) {
      const ByteVector all = zero_operands(weights, segment.group);
      std::memcpy(zeros, &all, sizeof(zeros));
    }
    for (int64_t input = segment.begin; input < segment.end; input += kStepInputs) {
      int8x16_t lanes[Lines::kLines];
      load_x<Lines>(x, row, input, lanes);
      for (int line = 0; line < 3; ++line) __builtin_prefetch(nonzeros + kAhead + line * kVectorBytes);
      __builtin_prefetch(mask + kAhead / 4);
      const auto tile_row = [&]<int lane>() __attribute__((always_inline)) {
        const Places places(mask);
        const auto expand = [&](int quarter) __attribute__((always_inline)) {
          return zero_points ? places.expand(nonzeros, quarter, zeros[quarter]) : places.expand(nonzeros, quarter);
        };
        if constexpr (pairs) {
          int8x16_t line[kQuarters] = {expand(0), expand(1), expand(2), expand(3)};
          pairs_to_fours(line);
          for (int quarter = 0; quarter < kQuarters; ++quarter) sums.template add<lane>(quarter, line[quarter], lanes);
        } else {
          for (int quarter = 0; quarter < kQuarters; ++quarter)
            sums.template add<lane>(quarter, expand(quarter), lanes);
        }
        nonzeros += places.total;
        if (nonzeros > end) [[unlikely]]
          nonzeros = end, over = true;
        mask += 8;
      };
      tile_row.template operator()<0>();
      tile_row.template operator()<1>();
      tile_row.template operator()<2>();
      tile_row.template operator()<3>();
    }
    accumulators.template add<zero_points, units, Scales>(weights, x, segment, row, sums);
  });
  accumulators.add_to(out);
  return over ? -1 : nonzeros - operands.codes;
}

// Rows of activations, a few at a time, sharing what is read of the weights. `floats`: in several limbs, always.
template <bool nine_bit_lines, bool floats, class Rows>
void in_steps(const IntegerActivations& x, float* out, const Rows& rows) {
  int64_t row = 0;
  const auto all = [&]<class Lines, bool units>(int64_t end) {
    for (; row < end; row += Lines::kRows) {
      rows.template operator()<Lines, units>(row, out + row * kBlockNeurons);
    }
  };
  const auto of = [&]<int limbs, bool units>() {
    constexpr int kMost = 4 / limbs;
    all.template operator()<Limbs<kMost, limbs>, units>(x.batch / kMost * kMost);
    all.template operator()<Limbs<1, limbs>, units>(x.batch);
  };
  if constexpr (nine_bit_lines) {
    if (x.nine_bit_lines) return all.template operator()<NineBitLines, true>(x.batch);
  }
  // Several limbs are always block floating point.
  if (x.limb_count == 3) return of.template operator()<3, true>();
  if (x.limb_count == 2) return of.template operator()<2, true>();
  if constexpr (!floats) {
    x.units ? of.template operator()<1, true>() : of.template operator()<1, false>();
  }
}

template <class Codes, class Scales, bool anchored>
void dense_with(const KPanel& weights, const IntegerActivations& x, const uint8_t* packed, float* out) {
  constexpr int kGroup = anchored && std::is_same_v<Scales, Bf16Scales> ? kGroupInputs : 0;
  const bool usual = weights.format->group == kGroup && x.segment == kGroup && weights.inputs % kGroupInputs == 0;
  constexpr bool kFloats = std::is_same_v<Codes, Table4>;
  in_steps<!kFloats, kFloats>(x, out, [&]<class Lines, bool units>(int64_t row, float* to) {
    constexpr bool kUnits = units && !Sums<Lines, 1, Codes::kShift, anchored, true>::kInUnits;
    usual ? dense_rows<Codes, Scales, Lines, kUnits, anchored, kGroup>(weights, x, packed, row, to)
          : dense_rows<Codes, Scales, Lines, kUnits, anchored, 0>(weights, x, packed, row, to);
  });
}

template <class Codes>
int64_t dense(const KPanel& weights, const IntegerActivations& x, const uint8_t* packed, float* out) {
  const bool anchored = Codes::kAnchors && fits_anchor(x);
  const auto multiply = [&]<class Scales>() {
    anchored ? dense_with<Codes, Scales, Codes::kAnchors>(weights, x, packed, out)
             : dense_with<Codes, Scales, false>(weights, x, packed, out);
  };
  weights.format->scale == ScaleType::bf16 ? multiply.template operator()<Bf16Scales>()
                                           : multiply.template operator()<OtherScales>();
  return 0;
}

int64_t dense_table(const KPanel& weights, const IntegerActivations& x, float* out) {
  weights.format->scale == ScaleType::e8m0 ? dense_with<Table4, PowerScales, false>(weights, x, weights.packed, out)
                                           : dense_with<Table4, OtherScales, false>(weights, x, weights.packed, out);
  return 0;
}

template <class Scales, int shift, bool anchored, bool zero_points = false, bool looked_up = false>
int64_t sparse_with(const KPanel& weights, const IntegerActivations& x, const Nonzeros& operands, float* out) {
  int64_t consumed = 0;
  in_steps<false, looked_up>(x, out, [&]<class Lines, bool units>(int64_t row, float* to) {
    consumed =
        sparse_rows<Scales, shift, zero_points, looked_up, Lines, units, anchored>(weights, x, operands, row, to);
  });
  return consumed;
}

// A stream of signed 4-bit codes to operands sixteen times too large. Whole vectors.
void unpack_nibbles(const uint8_t* in, int64_t count, uint8_t* operands) {
  for (int64_t i = 0; i < count; i += 32, in += 16) {
    const uint8x16_t pairs = vld1q_u8(in);
    const uint8x16_t low = vshlq_n_u8(pairs, 4), high = vandq_u8(pairs, vdupq_n_u8(0xf0));
    vst1q_u8(operands + i, vzip1q_u8(low, high));
    vst1q_u8(operands + i + 16, vzip2q_u8(low, high));
  }
}

int64_t sparse(const KPanel& weights, const IntegerActivations& x, float* out, uint8_t* scratch) {
  const int bits = weights.format->bits;
  const int64_t consumed = weights.consumed, left = weights.limit - consumed;
  if (bits == 8) return sparse_with<OtherScales, 0, false>(weights, x, {weights.packed + consumed, left}, out);
  const bool as_signed = !weights.format->integers && !weights.zeros;
  if (bits == 4 && as_signed && weights.format->scale == ScaleType::bf16 && fits_anchor(x)) {
    const int64_t count = count_bits(weights.mask, weights.tiles * tile_mask_bytes(8));
    if (count > left) return -1;
    unpack_nibbles(weights.packed + consumed / 2, consumed % 2 + count, scratch);
    return sparse_with<Bf16Scales, 4, true>(weights, x, {scratch + consumed % 2, count}, out);
  }
  const Nonzeros nonzeros = unpack_nonzeros<Neon>(weights, scratch);
  if (nonzeros.count < 0) return -1;
  to_operands(*weights.format, scratch, nonzeros.count + kNonzerosBefore);
  if (weights.format->integers) {
    return weights.format->scale == ScaleType::e8m0
               ? sparse_with<PowerScales, 0, false, false, true>(weights, x, nonzeros, out)
               : sparse_with<OtherScales, 0, false, false, true>(weights, x, nonzeros, out);
  }
  return weights.zeros ? sparse_with<OtherScales, 0, false, true>(weights, x, nonzeros, out)
                       : sparse_with<OtherScales, 0, false>(weights, x, nonzeros, out);
}

template <bool negative>
int64_t dense4(const KPanel& weights, const IntegerActivations& x, float* out, uint8_t* scratch) {
  if (x.batch <= kFewRows) return dense<Dense4<negative>>(weights, x, weights.packed, out);
  Halved4<negative>::halve(weights.packed, weights.tiles, scratch);
  return dense<Halved4<negative>>(weights, x, scratch, out);
}

int64_t decoded(const KPanel& weights, const IntegerActivations& x, float* out, uint8_t* scratch) {
  uint8_t* operands = operands_in(weights, scratch);
  const int64_t consumed = decode_operands<Neon>(weights, operands, scratch);
  if (consumed < 0) return consumed;
  weights.zeros ? dense<Dense8<true>>(weights, x, operands, out) : dense<Dense8<false>>(weights, x, operands, out);
  return consumed;
}

inline int64_t linear_by_dots(const KPanel& weights, const IntegerActivations& x, float* out, uint8_t* scratch) {
  const int bits = weights.format->bits;
  const bool negative = !weights.zeros;
  const bool signed_bytes = negative || bits < 8;  // codes, as operands
  const int64_t lines = x.batch * (x.nine_bit_lines ? 2 : x.limb_count);
  const bool few = weights.format->integers ? x.batch <= kFewLookedUp : lines <= kFewRows;
  if (weights.mask && signed_bytes && few) return sparse(weights, x, out, scratch);
  if (!weights.mask && weights.format->integers) return dense_table(weights, x, out);
  if (in_groups(weights, x) && lines < kFewRows) {
    for (int64_t row = 0; row < x.batch; ++row) multiply_in_groups(weights, x, row, out + row * kBlockNeurons);
    return 0;
  }
  if (!weights.mask && bits == 4 && negative) return dense4<true>(weights, x, out, scratch);
  if (!weights.mask && bits == 4) return dense4<false>(weights, x, out, scratch);
  if (!weights.mask && bits == 8 && negative) return dense<Dense8<false, false>>(weights, x, weights.packed, out);
  return decoded(weights, x, out, scratch);
}

}  // namespace
}  // namespace tilepress
