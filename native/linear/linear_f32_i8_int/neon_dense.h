// Dense integer weights × a few rows of activations (sdot).
#pragma once

#include "linear/linear_f32_i8_int/neon_groups.h"
#include "linear/linear_f32_i8_int/neon_lines.h"

namespace tilepress {
namespace {

// Dense 8-bit operands, `cached` or not, or codes that are operands already. With zero points, sums may leave the range
// of anchored sums.
template <bool zero_points, bool cached = true>
struct Dense8 : PlainCodes {
  static constexpr int kBytes = 4 * kVectorBytes, kShift = 0;
  static constexpr bool kCached = cached;
  static constexpr bool kZeroPoints = zero_points, kAnchors = !zero_points;
  using PlainCodes::PlainCodes;

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

// Dense 4-bit codes that split() has unpacked to operands, for many rows.
template <bool signed_codes>
struct Split4 : Dense4<signed_codes> {
  static constexpr bool kCached = true;
  static constexpr int kBytes = Dense8<false>::kBytes;
  using Dense4<signed_codes>::Dense4;

  template <class Sums, class X>
  [[gnu::always_inline]] static void step(const uint8_t* packed, const X& x, Sums& sums) {
    Dense8<false>::step(packed, x, sums);
  }

  static void split(const uint8_t* packed, int64_t tiles, uint8_t* operands) {
    for (int64_t row = 0; row < tiles * kBlockNeurons; row += 2, operands += 2 * kVectorBytes) {
      for (int i = 0; i < kVectorBytes; i += 16, packed += 16) {
        const uint8x16_t pairs = vld1q_u8(packed);
        vst1q_u8(operands + i, vreinterpretq_u8_s8(Dense4<signed_codes>::low(pairs)));
        vst1q_u8(operands + kVectorBytes + i, vreinterpretq_u8_s8(Dense4<signed_codes>::high(pairs)));
      }
    }
  }
};

// Dense 4-bit codes of 16-bit tiles, looked up. The low and the high halves of 64 bytes are two lines; each has two
// rows with two inputs per neuron, which are interleaved to one row with four.
class Table4 {
 public:
  static constexpr int kBytes = 2 * kVectorBytes, kQuarterBytes = 8, kShift = 0;
  static constexpr bool kCached = false;
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

// One set of rows × the quarters of a block from `first` on, as many at a time as registers allow. `group`: if not 0,
// segments and groups all have that many inputs.
template <class Codes, class Scales, class Lines, bool units, bool anchored, int group, int first = 0>
void dense_rows(const KPanel& weights, const IntegerActivations& x, const uint8_t* codes, int64_t row, float* out) {
  constexpr bool kOnePass = !units && Codes::kShift == 0 && !Codes::kCached;  // few segments, codes from memory
  constexpr int kPassQuarters = Lines::kLines < 4 || kOnePass ? kQuarters : kQuarters / 2;
  using PassSums = Sums<Lines, kPassQuarters, Codes::kShift, anchored, true>;
  Totals<Lines::kRows, kPassQuarters, first> accumulators;
  const Codes decoder(*weights.format);
  const uint8_t* packed = codes;
  const int8_t* lines[Lines::kLines];
  for (int line = 0; line < Lines::kLines; ++line) lines[line] = Lines::line(x, row, line);
  const auto multiply = [&](const Segment& segment) __attribute__((always_inline)) {
    PassSums sums(x, row, segment.index);
    const auto step = [&](int64_t input) __attribute__((always_inline)) {
      int8x16_t lanes[Lines::kLines];
      for (int line = 0; line < Lines::kLines; ++line) lanes[line] = vld1q_s8(lines[line] + input);
      if constexpr (!Codes::kCached) {
        for (int line = 0; line < Codes::kBytes; line += kVectorBytes) __builtin_prefetch(packed + kAhead + line);
      }
      decoder.step(packed + Codes::kQuarterBytes * first, lanes, sums);
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
    const int64_t first_group = weights.first / group;
    for (int64_t index = 0; index < weights.inputs / group; ++index) {
      multiply(Segment{index, index * group, (index + 1) * group, first_group + index});
    }
  } else {
    for_segments(weights, x, multiply);
  }
  accumulators.add_to(out, x.batch - row);
  if constexpr (first + kPassQuarters < kQuarters) {
    dense_rows<Codes, Scales, Lines, units, anchored, group, first + kPassQuarters>(weights, x, codes, row, out);
  }
}

// All rows.
template <class Codes, class Scales, bool anchored>
void dense_with(const KPanel& weights, const IntegerActivations& x, const uint8_t* packed, float* out) {
  constexpr int kGroup = anchored && std::is_same_v<Scales, Bf16Scales> ? kGroupInputs : 0;
  const bool fixed_group = weights.format->group == kGroup && x.segment == kGroup && weights.inputs % kGroupInputs == 0;
  constexpr bool kFloats = std::is_same_v<Codes, Table4>;
  for_row_batches<!kFloats, kFloats>(x, out, [&]<class Lines, bool units>(int64_t row, float* to) {
    constexpr bool kUnits = units && !Sums<Lines, 1, Codes::kShift, anchored, true>::kInUnits;
    fixed_group ? dense_rows<Codes, Scales, Lines, kUnits, anchored, kGroup>(weights, x, packed, row, to)
                : dense_rows<Codes, Scales, Lines, kUnits, anchored, 0>(weights, x, packed, row, to);
  });
}

// Chooses the type of scales, and whether sums are anchored.
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

template <bool signed_codes>
int64_t dense4(const KPanel& weights, const IntegerActivations& x, float* out, uint8_t* scratch) {
  if (x.batch <= kFewLines) return dense<Dense4<signed_codes>>(weights, x, weights.packed, out);
  Split4<signed_codes>::split(weights.packed, weights.tiles, scratch);
  return dense<Split4<signed_codes>>(weights, x, scratch, out);
}

}  // namespace
}  // namespace tilepress
