// Two ways, with the same sums. A few rows of activations: dense 4- and 8-bit codes straight from their bytes, sparse
// codes expanded in registers. Everything else: the span decoded to operands, which then are dense 8-bit codes.
#include "kernels/linear_f32_i8_int/neon_groups.h"
#include "kernels/linear_f32_i8_int/neon_rows.h"
#include "kernels/unpack/neon.h"

namespace tilepress {
namespace {

// A sum of products, as an integer, may be started at the bits of a float whose last place is 1 (or 1/16, or 16). Read
// as a float it then is that float plus the sum, and one subtraction converts it: less work than a conversion, which
// takes one of the two vector pipes for two cycles. Good for sums below 2^22.
template <int shift>
float32x4_t anchor() {
  return vdupq_n_f32(shift > 0 ? kSumStart : shift < 0 ? 0x1.8p27f : 0x1.8p23f);
}
bool fits_anchor(const IntegerActivations& x) { return x.segment <= 128 && x.bits <= 9; }  // 255 * 128 * 128 < 2^22

// What a row of activations needs: its own sums for each digit.
template <int rows, int digits, int shift, bool anchored>
struct Sums {
  static constexpr bool kAnchored = anchored;
  int32x4_t of[rows][digits][kQuarters];

  void clear() {
    const int32x4_t start = anchored ? vreinterpretq_s32_f32(anchor<shift>()) : vdupq_n_s32(0);
    for (auto& row : of) {
      for (int digit = 0; digit < digits; ++digit) {
        for (auto& sum : row[digit]) sum = digit == digits - 1 ? start : vdupq_n_s32(0);
      }
    }
  }

  template <int lane>
  [[gnu::always_inline]] void add(int quarter, int8x16_t operands, const int8x16_t (&x)[rows][digits]) {
    for (int row = 0; row < rows; ++row) {
      for (int digit = 0; digit < digits; ++digit) {
        of[row][digit][quarter] = vdotq_laneq_s32(of[row][digit][quarter], operands, x[row][digit], lane);
      }
    }
  }

  int32x4_t whole(int row, int quarter, int32x4_t digit_bits) const {
    int32x4_t sum = of[row][0][quarter];
    for (int digit = 1; digit < digits; ++digit) {
      sum = vaddq_s32(of[row][digit][quarter], vshlq_s32(sum, digit_bits));
    }
    return sum;
  }

  static float32x4_t to_float(int32x4_t dot) {
    if constexpr (anchored) return vsubq_f32(vreinterpretq_f32_s32(dot), anchor<shift>());
    if constexpr (shift > 0) return vcvtq_n_f32_s32(dot, shift);
    return vcvtq_f32_s32(dot);
  }
};

template <int rows, int digits>
[[gnu::always_inline]] inline void load_x(const IntegerActivations& x, int64_t row, int64_t input,
                                          int8x16_t (&to)[rows][digits]) {
  for (int i = 0; i < rows; ++i) {
    for (int digit = 0; digit < digits; ++digit) {
      to[i][digit] = vld1q_s8(x.digits[digit] + (row + i) * x.stride + input);
    }
  }
}

// Dense 8-bit operands, or codes that are their own operands. With zero points to take off, sums can leave the range of
// anchors on the way.
template <bool zero_points>
struct Dense8 {
  static constexpr int kBytes = 4 * kVectorBytes, kShift = 0;
  static constexpr bool kZeroPoints = zero_points, kAnchors = !zero_points;

  template <class Sums, class X>
  [[gnu::always_inline]] static void step(const uint8_t* packed, const X& x, Sums& sums) {
    const auto* operands = reinterpret_cast<const int8_t*>(packed);
    for (int quarter = 0; quarter < kQuarters; ++quarter, operands += 16) {
      sums.template add<0>(quarter, vld1q_s8(operands), x);
      sums.template add<1>(quarter, vld1q_s8(operands + kVectorBytes), x);
      sums.template add<2>(quarter, vld1q_s8(operands + 2 * kVectorBytes), x);
      sums.template add<3>(quarter, vld1q_s8(operands + 3 * kVectorBytes), x);
    }
  }
};

// Expanding 64 codes: how many are kept before each quarter of them comes from one multiplication, so that the four
// look-ups need not wait for each other.
struct Places {
  explicit Places(const uint8_t* mask) {
    std::memcpy(&bits, mask, 8);
    const uint64_t counts = vget_lane_u64(vreinterpret_u64_u8(vcnt_u8(vcreate_u8(bits))), 0);
    const uint64_t ends = counts * 0x0101010101010101;
    starts = ends << 8;
    total = static_cast<int64_t>(ends >> 56);
  }

  // What was dropped becomes zero, or what it is in `instead`.
  int8x16_t expand(const uint8_t* kept, int quarter) const {
    return vreinterpretq_s8_u8(vqtbl1q_u8(codes(kept, quarter), places(quarter)));
  }
  int8x16_t expand(const uint8_t* kept, int quarter, uint8x16_t instead) const {
    return vreinterpretq_s8_u8(vqtbx1q_u8(instead, codes(kept, quarter), places(quarter)));
  }

  uint8x16_t codes(const uint8_t* kept, int quarter) const { return vld1q_u8(kept + (starts >> 16 * quarter & 0xff)); }
  uint8x16_t places(int quarter) const {
    const uint8x16_t first = vld1q_u8(kWideShuffles.first[bits >> 16 * quarter & 0xff]);
    const uint8x16_t second = vld1q_u8(kWideShuffles.second[bits >> (16 * quarter + 8) & 0xff]);
    return vaddq_u8(first, second);
  }

  uint64_t bits, starts;
  int64_t total;
};

constexpr int kAhead = 512;  // bytes to prefetch; hides what the hardware's own prefetching leaves

template <class Codes, class Scales, int rows, int digits, bool units, bool anchored>
void dense_rows(const SpanWeights& weights, const IntegerActivations& x, const uint8_t* packed, int64_t row,
                float* out) {
  Totals<rows> totals;
  for_segments(weights, x, [&](const Segment& segment) {
    Sums<rows, digits, Codes::kShift, anchored> sums;
    sums.clear();
    for (int64_t input = segment.begin; input < segment.end; input += kStepInputs, packed += Codes::kBytes) {
      int8x16_t lanes[rows][digits];
      load_x<rows, digits>(x, row, input, lanes);
      for (int line = 0; line < Codes::kBytes; line += kVectorBytes) __builtin_prefetch(packed + kAhead + line);
      Codes::step(packed, lanes, sums);
    }
    totals.template add<Codes::kZeroPoints, units, Scales>(weights, x, segment, row, sums);
  });
  totals.add_to(out);
}

// Operands, 2^shift times too large, expanded a tile row at a time. Returns how many it took, or -1 where that is more
// than there are; it never reads more than a vector past those.
template <class Scales, int shift, bool zero_points, int rows, int digits, bool units, bool anchored>
int64_t sparse_rows(const SpanWeights& weights, const IntegerActivations& x, const Kept& operands, int64_t row,
                    float* out) {
  const uint8_t *mask = weights.mask, *kept = operands.codes, *end = kept + operands.count;
  bool over = false;
  Totals<rows> totals;
  for_segments(weights, x, [&](const Segment& segment) {
    Sums<rows, digits, shift, anchored> sums;
    sums.clear();
    uint8x16_t zeros[kQuarters] = {};
    if constexpr (zero_points) {
      const ByteVector all = zero_operands(weights, segment.group);
      std::memcpy(zeros, &all, sizeof(zeros));
    }
    for (int64_t input = segment.begin; input < segment.end; input += kStepInputs) {
      int8x16_t lanes[rows][digits];
      load_x<rows, digits>(x, row, input, lanes);
      for (int line = 0; line < 3; ++line) __builtin_prefetch(kept + kAhead + line * kVectorBytes);
      __builtin_prefetch(mask + kAhead / 4);
      const auto tile_row = [&]<int lane>() {
        const Places places(mask);
        for (int quarter = 0; quarter < kQuarters; ++quarter) {
          const int8x16_t operands =
              zero_points ? places.expand(kept, quarter, zeros[quarter]) : places.expand(kept, quarter);
          sums.template add<lane>(quarter, operands, lanes);
        }
        kept += places.total;
        if (kept > end) [[unlikely]]
          kept = end, over = true;
        mask += 8;
      };
      tile_row.template operator()<0>();
      tile_row.template operator()<1>();
      tile_row.template operator()<2>();
      tile_row.template operator()<3>();
    }
    totals.template add<zero_points, units, Scales>(weights, x, segment, row, sums);
  });
  totals.add_to(out);
  return over ? -1 : kept - operands.codes;
}

// Rows of activations, a few at a time, sharing what is read of the weights.
template <class Rows>
void in_steps(const IntegerActivations& x, float* out, const Rows& rows) {
  const auto of = [&]<int digits, bool units>() {
    constexpr int kMost = 4 / digits;
    int64_t row = 0;
    for (; row + kMost <= x.batch; row += kMost) {
      rows.template operator()<kMost, digits, units>(row, out + row * kBlockNeurons);
    }
    for (; row < x.batch; ++row) rows.template operator()<1, digits, units>(row, out + row * kBlockNeurons);
  };
  // Several digits are always block floating point.
  if (x.digit_count == 3) return of.template operator()<3, true>();
  if (x.digit_count == 2) return of.template operator()<2, true>();
  x.units ? of.template operator()<1, true>() : of.template operator()<1, false>();
}

template <class Codes, class Scales, bool anchored>
void dense_with(const SpanWeights& weights, const IntegerActivations& x, const uint8_t* packed, float* out) {
  in_steps(x, out, [&]<int rows, int digits, bool units>(int64_t row, float* to) {
    dense_rows<Codes, Scales, rows, digits, units, anchored>(weights, x, packed, row, to);
  });
}

template <class Codes>
int64_t dense(const SpanWeights& weights, const IntegerActivations& x, const uint8_t* packed, float* out) {
  const bool anchored = Codes::kAnchors && fits_anchor(x);
  const auto multiply = [&]<class Scales>() {
    anchored ? dense_with<Codes, Scales, Codes::kAnchors>(weights, x, packed, out)
             : dense_with<Codes, Scales, false>(weights, x, packed, out);
  };
  weights.format->scale == ScaleType::bf16 ? multiply.template operator()<Bf16Scales>()
                                           : multiply.template operator()<OtherScales>();
  return 0;
}

template <class Scales, int shift, bool anchored, bool zero_points = false>
int64_t sparse_with(const SpanWeights& weights, const IntegerActivations& x, const Kept& operands, float* out) {
  int64_t taken = 0;
  in_steps(x, out, [&]<int rows, int digits, bool units>(int64_t row, float* to) {
    taken = sparse_rows<Scales, shift, zero_points, rows, digits, units, anchored>(weights, x, operands, row, to);
  });
  return taken;
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

int64_t sparse(const SpanWeights& weights, const IntegerActivations& x, float* out, uint8_t* scratch) {
  const int bits = weights.format->bits;
  const int64_t taken = weights.taken, left = weights.limit - taken;
  if (bits == 8) return sparse_with<OtherScales, 0, false>(weights, x, {weights.packed + taken, left}, out);
  if (bits == 4 && weights.format->scale == ScaleType::bf16 && fits_anchor(x)) {
    const int64_t count = count_bits(weights.mask, weights.tiles * tile_mask_bytes(8));
    if (count > left) return -1;
    unpack_nibbles(weights.packed + taken / 2, taken % 2 + count, scratch);
    return sparse_with<Bf16Scales, 4, true>(weights, x, {scratch + taken % 2, count}, out);
  }
  const Kept kept = unpack_kept<Neon>(weights, scratch);
  if (kept.count < 0) return -1;
  to_operands(*weights.format, scratch, kept.count + 8);
  return weights.zeros ? sparse_with<OtherScales, 0, false, true>(weights, x, kept, out)
                       : sparse_with<OtherScales, 0, false>(weights, x, kept, out);
}

int64_t decoded(const SpanWeights& weights, const IntegerActivations& x, float* out, uint8_t* scratch) {
  uint8_t* operands = operands_in(weights, scratch);
  const int64_t taken = decode_operands<Neon>(weights, operands, scratch);
  if (taken < 0) return taken;
  weights.zeros ? dense<Dense8<true>>(weights, x, operands, out) : dense<Dense8<false>>(weights, x, operands, out);
  return taken;
}

}  // namespace

int64_t neon_dotprod::linear_integer_span(const SpanWeights& weights, const IntegerActivations& x, float* out,
                                          uint8_t* scratch) {
  constexpr int64_t kFewRows = 4;  // above, expanding anew for each four costs more than keeping what was expanded
  const int bits = weights.format->bits;
  const bool negative = !weights.zeros;
  const bool signed_bytes = negative || bits < 8;  // codes, as operands
  if (weights.mask && signed_bytes && x.batch * x.digit_count <= kFewRows) return sparse(weights, x, out, scratch);
  if (in_groups(weights, x) && x.batch * x.digit_count < kFewRows) {
    for (int64_t row = 0; row < x.batch; ++row) multiply_in_groups(weights, x, row, out + row * kBlockNeurons);
    return 0;
  }
  if (!weights.mask && bits == 4 && negative) return dense<Dense4<true>>(weights, x, weights.packed, out);
  if (!weights.mask && bits == 4) return dense<Dense4<false>>(weights, x, weights.packed, out);
  if (!weights.mask && bits == 8 && negative) return dense<Dense8<false>>(weights, x, weights.packed, out);
  return decoded(weights, x, out, scratch);
}

}  // namespace tilepress
