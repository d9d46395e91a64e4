// Sparse integer weights × a few rows of activations: expanded in registers (sdot).
#pragma once

#include "linear/linear_f32_i8_int/neon_lines.h"
#include "pack/unpack_neon.h"

namespace tilepress {
namespace {

// Reorders a line of 16-bit tiles (two rows, two inputs per neuron) to one of 8-bit tiles (one row, four inputs).
[[gnu::always_inline]] inline void pairs_to_fours(int8x16_t (&line)[kQuarters]) {
  const auto words = [&](int i) { return vreinterpretq_s16_s8(line[i]); };
  const int16x8_t fours[kQuarters] = {vzip1q_s16(words(0), words(2)), vzip2q_s16(words(0), words(2)),
                                      vzip1q_s16(words(1), words(3)), vzip2q_s16(words(1), words(3))};
  for (int i = 0; i < kQuarters; ++i) line[i] = vreinterpretq_s8_s16(fours[i]);
}

// One set of rows. Operands, 2^shift times too large, are expanded one tile row at a time; `pairs`: of 16-bit tiles.
// Returns the number of non-zeros, or -1 if the mask has more bits than there are; never reads more than one vector
// past the last.
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

// All rows.
template <class Scales, int shift, bool anchored, bool zero_points = false, bool looked_up = false>
int64_t sparse_with(const KPanel& weights, const IntegerActivations& x, const Nonzeros& operands, float* out) {
  int64_t consumed = 0;
  for_row_batches<false, looked_up>(x, out, [&]<class Lines, bool units>(int64_t row, float* to) {
    consumed =
        sparse_rows<Scales, shift, zero_points, looked_up, Lines, units, anchored>(weights, x, operands, row, to);
  });
  return consumed;
}

// A stream of signed 4-bit codes to operands that are 16 times too large. Whole vectors.
void unpack_nibbles(const uint8_t* in, int64_t count, uint8_t* operands) {
  for (int64_t i = 0; i < count; i += 32, in += 16) {
    const uint8x16_t pairs = vld1q_u8(in);
    const uint8x16_t low = vshlq_n_u8(pairs, 4), high = vandq_u8(pairs, vdupq_n_u8(0xf0));
    vst1q_u8(operands + i, vzip1q_u8(low, high));
    vst1q_u8(operands + i + 16, vzip2q_u8(low, high));
  }
}

// Unpacks the non-zeros to operands, then multiplies.
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

}  // namespace
}  // namespace tilepress
