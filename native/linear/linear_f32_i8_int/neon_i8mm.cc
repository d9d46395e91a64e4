// Two lines of activations at a time go through `smmla`, which multiplies two rows of eight bytes with two others:
// eight inputs of two neurons, from two tile rows side by side, with those of two **lines** of x, which are two rows of
// activations, or two limbs of one row. Weights for more lines than one pass takes are
// put side by side once, in scratch memory. Where that has nothing to gain, the kernel of neon_dotprod does it.
#include "linear/linear_f32_i8_int/neon_dots.h"
#include "pack/unpack_neon.h"

namespace tilepress {
namespace {

constexpr int kPassLines = 4;                 // lines of x that share a look at the weights; registers for no more
constexpr int64_t kFewSparse = 4;             // lines for which neon_dotprod expands sparse weights in registers
constexpr int kPairBytes = 2 * kVectorBytes;  // operands of two tile rows

constexpr int line_pairs(int rows, int limbs) { return (rows * limbs + 1) / 2; }

// [pair of lines][inputs 0 … 7 or 8 … 15]: eight inputs of each of two lines.
template <int rows, int limbs>
struct PairedX {
  int8x16_t of[line_pairs(rows, limbs)][2];

  [[gnu::always_inline]] PairedX(const IntegerActivations& x, int64_t row, int64_t input) {
    for (int pair = 0; pair < line_pairs(rows, limbs); ++pair) {
      const int64x2_t first = line(x, row, 2 * pair, input), second = line(x, row, 2 * pair + 1, input);
      of[pair][0] = vreinterpretq_s8_s64(vzip1q_s64(first, second));
      of[pair][1] = vreinterpretq_s8_s64(vzip2q_s64(first, second));
    }
  }

  // Where a line is missing the one before it stands in; nobody asks for its sums.
  static int64x2_t line(const IntegerActivations& x, int64_t row, int index, int64_t input) {
    const int at = index < rows * limbs ? index : index - 1;
    const int8_t* limb = x.limbs[at % limbs];
    return vreinterpretq_s64_s8(vld1q_s8(limb + (row + at / limbs) * x.stride + input));
  }
};

// Neurons 0 and 1, and 2 and 3, of a quarter: eight inputs of each.
struct Neurons {
  [[gnu::always_inline]] static Neurons side_by_side(int8x16_t first, int8x16_t second) {
    const int32x4_t a = vreinterpretq_s32_s8(first), b = vreinterpretq_s32_s8(second);
    return {{vreinterpretq_s8_s32(vzip1q_s32(a, b)), vreinterpretq_s8_s32(vzip2q_s32(a, b))}};
  }

  int8x16_t of[2];
};

// Each vector has the sums of two neurons for two lines.
template <int rows, int limbs, int shift>
struct PairedSums {
  static constexpr bool kAnchored = false;
  int32x4_t of[line_pairs(rows, limbs)][kQuarters][2];
  int32x4_t limb_bits;

  explicit PairedSums(const IntegerActivations& x) : limb_bits(vdupq_n_s32(x.limb_bits)) {
    for (auto& pair : of) {
      for (auto& quarter : pair) quarter[0] = quarter[1] = vdupq_n_s32(0);
    }
  }

  [[gnu::always_inline]] void add(int quarter, int eight, const Neurons& neurons, const PairedX<rows, limbs>& x) {
    for (int pair = 0; pair < line_pairs(rows, limbs); ++pair) {
      for (int i = 0; i < 2; ++i) {
        int32x4_t& sum = of[pair][quarter][i];
        sum = vmmlaq_s32(sum, neurons.of[i], x.of[pair][eight]);
      }
    }
  }

  [[gnu::always_inline]] int32x4_t line(int index, int quarter) const {
    const auto& [low, high] = of[index / 2][quarter];
    return index % 2 ? vuzp2q_s32(low, high) : vuzp1q_s32(low, high);
  }

  [[gnu::always_inline]] int32x4_t whole(int row, int quarter) const {
    int32x4_t sum = line(limbs * row, quarter);
    for (int limb = 1; limb < limbs; ++limb) {
      sum = vaddq_s32(line(limbs * row + limb, quarter), vshlq_s32(sum, limb_bits));
    }
    return sum;
  }

  [[gnu::always_inline]] float32x4_t value(int row, int quarter) const { return to_float(whole(row, quarter)); }

  static float32x4_t to_float(int32x4_t dot) {
    if constexpr (shift > 0) return vcvtq_n_f32_s32(dot, shift);
    return vcvtq_f32_s32(dot);
  }
};

// Two tile rows of four neurons, side by side: from dense 4-bit codes, where both are in one vector, from operands, and
// from what put_side_by_side() wrote.
template <bool negative>
struct Paired4 {
  static constexpr int kPairStride = kVectorBytes, kShift = Dense4<negative>::kShift;
  static constexpr bool kZeroPoints = !negative;

  [[gnu::always_inline]] static Neurons neurons(const uint8_t* packed, int quarter) {
    const uint8x16_t both = vld1q_u8(packed + 16 * quarter);
    return Neurons::side_by_side(Dense4<negative>::low(both), Dense4<negative>::high(both));
  }
};

struct Paired8 {
  static constexpr int kPairStride = kPairBytes, kShift = 0;
  static constexpr bool kZeroPoints = false;

  [[gnu::always_inline]] static Neurons neurons(const uint8_t* packed, int quarter) {
    const auto* operands = reinterpret_cast<const int8_t*>(packed) + 16 * quarter;
    return Neurons::side_by_side(vld1q_s8(operands), vld1q_s8(operands + kVectorBytes));
  }
};

template <bool zero_points, int shift>
struct SideBySide {
  static constexpr int kPairStride = kPairBytes, kShift = shift;
  static constexpr bool kZeroPoints = zero_points;

  [[gnu::always_inline]] static Neurons neurons(const uint8_t* packed, int quarter) {
    const auto* operands = reinterpret_cast<const int8_t*>(packed) + 32 * quarter;
    return {{vld1q_s8(operands), vld1q_s8(operands + 16)}};
  }
};

template <class Codes>
void put_side_by_side(const uint8_t* packed, int64_t tiles, uint8_t* to) {
  for (int64_t pair = 0; pair < tiles * kBlockNeurons / 2; ++pair, packed += Codes::kPairStride) {
    for (int quarter = 0; quarter < kQuarters; ++quarter, to += 32) {
      const Neurons neurons = Codes::neurons(packed, quarter);
      vst1q_s8(reinterpret_cast<int8_t*>(to), neurons.of[0]);
      vst1q_s8(reinterpret_cast<int8_t*>(to) + 16, neurons.of[1]);
    }
  }
}

template <class Codes, class Scales, int rows, int limbs, bool units>
void paired_rows(const KPanel& weights, const IntegerActivations& x, const uint8_t* packed, int64_t row, float* out) {
  Totals<rows> accumulators;
  for_segments(weights, x, [&](const Segment& segment) {
    PairedSums<rows, limbs, Codes::kShift> sums(x);
    for (int64_t input = segment.begin; input < segment.end; input += kStepInputs) {
      const PairedX<rows, limbs> lines(x, row, input);
      for (int eight = 0; eight < 2; ++eight, packed += Codes::kPairStride) {
        for (int quarter = 0; quarter < kQuarters; ++quarter) {
          sums.add(quarter, eight, Codes::neurons(packed, quarter), lines);
        }
      }
    }
    accumulators.template add<Codes::kZeroPoints, units, Scales>(weights, x, segment, row, sums);
  });
  accumulators.add_to(out);
}

// All rows of x from `row` on, as many at a time as a pass takes, then half as many, and so on.
template <class Codes, class Scales, int rows, int limbs, bool units>
void paired_from(const KPanel& weights, const IntegerActivations& x, const uint8_t* packed, int64_t row, float* out) {
  for (; row + rows <= x.batch; row += rows) {
    float* to = out + row * kBlockNeurons;
    paired_rows<Codes, Scales, rows, limbs, units>(weights, x, packed, row, to);
  }
  if constexpr (rows > 1) {
    paired_from<Codes, Scales, rows / 2, limbs, units>(weights, x, packed, row, out);
  }
}

template <class Codes, class Scales>
void paired_with(const KPanel& weights, const IntegerActivations& x, const uint8_t* packed, float* out) {
  if (x.limb_count == 3) {  // several limbs are always block floating point
    paired_from<Codes, Scales, 1, 3, true>(weights, x, packed, 0, out);
  } else if (x.limb_count == 2) {
    paired_from<Codes, Scales, kPassLines / 2, 2, true>(weights, x, packed, 0, out);
  } else if (x.units) {
    paired_from<Codes, Scales, kPassLines, 1, true>(weights, x, packed, 0, out);
  } else {
    paired_from<Codes, Scales, kPassLines, 1, false>(weights, x, packed, 0, out);
  }
}

template <class Codes>
void paired(const KPanel& weights, const IntegerActivations& x, const uint8_t* packed, float* out) {
  weights.format->scale == ScaleType::bf16 ? paired_with<Codes, Bf16Scales>(weights, x, packed, out)
                                           : paired_with<Codes, OtherScales>(weights, x, packed, out);
}

int64_t lines_of(const IntegerActivations& x) { return x.batch * x.limb_count; }

// `scratch` must not be where `packed` is.
template <class Codes, bool zero_points = Codes::kZeroPoints>
void put_and_multiply(const KPanel& weights, const IntegerActivations& x, const uint8_t* packed, float* out,
                      uint8_t* scratch) {
  put_side_by_side<Codes>(packed, weights.tiles, scratch);
  paired<SideBySide<zero_points, Codes::kShift>>(weights, x, scratch, out);
}

// Operands, or codes that are their own operands. Those with zero points have been decoded, so come from near.
void multiply_operands(const KPanel& weights, const IntegerActivations& x, const uint8_t* operands, float* out,
                       uint8_t* scratch) {
  if (weights.zeros) {
    put_and_multiply<Paired8, true>(weights, x, operands, out, scratch);
  } else if (lines_of(x) > kPassLines) {
    put_and_multiply<Paired8>(weights, x, operands, out, scratch);
  } else {
    paired<Paired8>(weights, x, operands, out);
  }
}

template <bool negative>
void multiply_codes4(const KPanel& weights, const IntegerActivations& x, float* out, uint8_t* scratch) {
  lines_of(x) > kPassLines ? put_and_multiply<Paired4<negative>>(weights, x, weights.packed, out, scratch)
                           : paired<Paired4<negative>>(weights, x, weights.packed, out);
}

int64_t multiply_decoded(const KPanel& weights, const IntegerActivations& x, float* out, uint8_t* scratch) {
  uint8_t* operands = operands_in(weights, scratch);
  const int64_t consumed = decode_operands<Neon>(weights, operands, scratch);
  if (consumed >= 0) multiply_operands(weights, x, operands, out, scratch);
  return consumed;
}

int64_t linear_f32_i8_int(const KPanel& weights, const IntegerActivations& x, float* out, uint8_t* scratch) {
  const int bits = weights.format->bits;
  const bool negative = !weights.zeros;
  const int64_t few = weights.mask && (negative || bits < 8) ? kFewSparse : 1;
  const bool table = !weights.mask && weights.format->integers;
  if (table || lines_of(x) <= few) return linear_by_dots(weights, x, out, scratch);
  if (weights.mask || (bits != 4 && (bits != 8 || !negative))) return multiply_decoded(weights, x, out, scratch);
  if (bits == 8) {
    multiply_operands(weights, x, weights.packed, out, scratch);
  } else {
    negative ? multiply_codes4<true>(weights, x, out, scratch) : multiply_codes4<false>(weights, x, out, scratch);
  }
  return 0;
}

TILEPRESS_KERNEL(linear_f32_i8_int);

}  // namespace
}  // namespace tilepress
