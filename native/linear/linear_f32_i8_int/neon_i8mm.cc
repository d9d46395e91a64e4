// smmla multiplies two rows of eight bytes with two others: here eight inputs of two neurons, from two tile rows that
// are interleaved, with two lines of x (two rows of activations, or two limbs of one row). If there are more lines than
// one pass takes, weights are interleaved once, in `scratch`. Where smmla gains nothing, sdot is used (neon_dots.h).
#include "linear/linear_f32_i8_int/neon_dots.h"
#include "pack/unpack_neon.h"

namespace tilepress {
namespace {

constexpr int kPassLines = 4;                 // lines of x per pass over the weights, as registers allow
constexpr int64_t kFewSparse = 4;             // up to this many lines, sparse weights are expanded in registers
constexpr int kPairBytes = 2 * kVectorBytes;  // operands of two tile rows

constexpr int line_pairs(int rows, int limbs) { return (rows * limbs + 1) / 2; }

// [pair of lines][inputs 0 … 7 or 8 … 15]: eight inputs of each of two lines.
template <int rows, int limbs>
struct PairedX {
  int8x16_t lanes[line_pairs(rows, limbs)][2];

  [[gnu::always_inline]] PairedX(const IntegerActivations& x, int64_t row, int64_t input) {
    for (int pair = 0; pair < line_pairs(rows, limbs); ++pair) {
      const int64x2_t first = line(x, row, 2 * pair, input), second = line(x, row, 2 * pair + 1, input);
      lanes[pair][0] = vreinterpretq_s8_s64(vzip1q_s64(first, second));
      lanes[pair][1] = vreinterpretq_s8_s64(vzip2q_s64(first, second));
    }
  }

  // If the second line of a pair is missing, the first is used again; its sums are ignored.
  static int64x2_t line(const IntegerActivations& x, int64_t row, int index, int64_t input) {
    const int at = index < rows * limbs ? index : index - 1;
    const int8_t* limb = x.limbs[at % limbs];
    return vreinterpretq_s64_s8(vld1q_s8(limb + (row + at / limbs) * x.stride + input));
  }
};

// Neurons 0 and 1, and 2 and 3, of a quarter: eight inputs of each.
struct Neurons {
  [[gnu::always_inline]] static Neurons interleave(int8x16_t first, int8x16_t second) {
    const int32x4_t a = vreinterpretq_s32_s8(first), b = vreinterpretq_s32_s8(second);
    return {{vreinterpretq_s8_s32(vzip1q_s32(a, b)), vreinterpretq_s8_s32(vzip2q_s32(a, b))}};
  }

  int8x16_t pair[2];
};

// Each vector has the sums of two neurons for two lines.
template <int rows, int limbs, int shift>
struct PairedSums {
  static constexpr bool kAnchored = false;
  int32x4_t sums[line_pairs(rows, limbs)][kQuarters][2];
  int32x4_t limb_bits;

  explicit PairedSums(const IntegerActivations& x) : limb_bits(vdupq_n_s32(x.limb_bits)) {
    for (auto& pair : sums) {
      for (auto& quarter : pair) quarter[0] = quarter[1] = vdupq_n_s32(0);
    }
  }

  [[gnu::always_inline]] void add(int quarter, int eight, const Neurons& neurons, const PairedX<rows, limbs>& x) {
    for (int pair = 0; pair < line_pairs(rows, limbs); ++pair) {
      for (int i = 0; i < 2; ++i) {
        int32x4_t& sum = sums[pair][quarter][i];
        sum = vmmlaq_s32(sum, neurons.pair[i], x.lanes[pair][eight]);
      }
    }
  }

  [[gnu::always_inline]] int32x4_t line(int index, int quarter) const {
    const auto& [low, high] = sums[index / 2][quarter];
    return index % 2 ? vuzp2q_s32(low, high) : vuzp1q_s32(low, high);
  }

  [[gnu::always_inline]] int32x4_t combine_limbs(int row, int quarter) const {
    int32x4_t sum = line(limbs * row, quarter);
    for (int limb = 1; limb < limbs; ++limb) {
      sum = vaddq_s32(line(limbs * row + limb, quarter), vshlq_s32(sum, limb_bits));
    }
    return sum;
  }

  [[gnu::always_inline]] float32x4_t value(int row, int quarter) const { return to_float(combine_limbs(row, quarter)); }

  static float32x4_t to_float(int32x4_t dot) {
    if constexpr (shift > 0) return vcvtq_n_f32_s32(dot, shift);
    return vcvtq_f32_s32(dot);
  }
};

// Codes: how two interleaved tile rows of four neurons are read. Paired4: dense 4-bit codes, both rows in one vector;
// Paired8: operands; Interleaved: written by interleave_rows().
template <bool signed_codes>
struct Paired4 {
  static constexpr int kPairStride = kVectorBytes, kShift = Dense4<signed_codes>::kShift;
  static constexpr bool kZeroPoints = !signed_codes;

  [[gnu::always_inline]] static Neurons neurons(const uint8_t* packed, int quarter) {
    const uint8x16_t both = vld1q_u8(packed + 16 * quarter);
    return Neurons::interleave(Dense4<signed_codes>::low(both), Dense4<signed_codes>::high(both));
  }
};

struct Paired8 {
  static constexpr int kPairStride = kPairBytes, kShift = 0;
  static constexpr bool kZeroPoints = false;

  [[gnu::always_inline]] static Neurons neurons(const uint8_t* packed, int quarter) {
    const auto* operands = reinterpret_cast<const int8_t*>(packed) + 16 * quarter;
    return Neurons::interleave(vld1q_s8(operands), vld1q_s8(operands + kVectorBytes));
  }
};

template <bool zero_points, int shift>
struct Interleaved {
  static constexpr int kPairStride = kPairBytes, kShift = shift;
  static constexpr bool kZeroPoints = zero_points;

  [[gnu::always_inline]] static Neurons neurons(const uint8_t* packed, int quarter) {
    const auto* operands = reinterpret_cast<const int8_t*>(packed) + 32 * quarter;
    return {{vld1q_s8(operands), vld1q_s8(operands + 16)}};
  }
};

template <class Codes>
void interleave_rows(const uint8_t* packed, int64_t tiles, uint8_t* to) {
  for (int64_t pair = 0; pair < tiles * kBlockNeurons / 2; ++pair, packed += Codes::kPairStride) {
    for (int quarter = 0; quarter < kQuarters; ++quarter, to += 32) {
      const Neurons neurons = Codes::neurons(packed, quarter);
      vst1q_s8(reinterpret_cast<int8_t*>(to), neurons.pair[0]);
      vst1q_s8(reinterpret_cast<int8_t*>(to) + 16, neurons.pair[1]);
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

// All rows of x from `row` on: `rows` at a time, then half as many, and so on.
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

// `scratch` must not overlap `packed`.
template <class Codes, bool zero_points = Codes::kZeroPoints>
void interleave_and_multiply(const KPanel& weights, const IntegerActivations& x, const uint8_t* packed, float* out,
                             uint8_t* scratch) {
  interleave_rows<Codes>(packed, weights.tiles, scratch);
  paired<Interleaved<zero_points, Codes::kShift>>(weights, x, scratch, out);
}

// Operands, or codes that are operands already. Those with zero points were decoded, so they are cached.
void multiply_operands(const KPanel& weights, const IntegerActivations& x, const uint8_t* operands, float* out,
                       uint8_t* scratch) {
  if (weights.zeros) {
    interleave_and_multiply<Paired8, true>(weights, x, operands, out, scratch);
  } else if (lines_of(x) > kPassLines) {
    interleave_and_multiply<Paired8>(weights, x, operands, out, scratch);
  } else {
    paired<Paired8>(weights, x, operands, out);
  }
}

template <bool signed_codes>
void multiply_codes4(const KPanel& weights, const IntegerActivations& x, float* out, uint8_t* scratch) {
  lines_of(x) > kPassLines ? interleave_and_multiply<Paired4<signed_codes>>(weights, x, weights.packed, out, scratch)
                           : paired<Paired4<signed_codes>>(weights, x, weights.packed, out);
}

int64_t multiply_decoded(const KPanel& weights, const IntegerActivations& x, float* out, uint8_t* scratch) {
  uint8_t* operands = operands_in(weights, scratch);
  const int64_t consumed = decode_operands<Neon>(weights, operands, scratch);
  if (consumed >= 0) multiply_operands(weights, x, operands, out, scratch);
  return consumed;
}

int64_t linear_f32_i8_int(const KPanel& weights, const IntegerActivations& x, float* out, uint8_t* scratch) {
  const int bits = weights.format->bits;
  const bool signed_codes = !weights.zeros;
  const int64_t few = weights.mask && (signed_codes || bits < 8) ? kFewSparse : 1;
  const bool table = !weights.mask && weights.format->integers;
  if (table || lines_of(x) <= few) return linear_by_dots(weights, x, out, scratch);
  if (weights.mask || (bits != 4 && (bits != 8 || !signed_codes))) return multiply_decoded(weights, x, out, scratch);
  if (bits == 8) {
    multiply_operands(weights, x, weights.packed, out, scratch);
  } else {
    signed_codes ? multiply_codes4<true>(weights, x, out, scratch) : multiply_codes4<false>(weights, x, out, scratch);
  }
  return 0;
}

TILEPRESS_KERNEL(linear_f32_i8_int);

}  // namespace
}  // namespace tilepress
