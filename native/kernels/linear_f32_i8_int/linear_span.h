// y = x · Wᵀ for one block of 16 neurons over a span of inputs, integer activations and integer weights. In a nameless
// namespace for the reason that pack_block.h gives. Integer dot products over each segment of inputs are exact; then,
// segment after segment,
//   sum = fma(float(dot) [* unit], scale, sum)     rounded once (units are powers of two), on every instruction set
//   alike.
// This is the way that takes any weights: decode the whole span to int8 operands, then multiply. Simd brings what
// unpack_block.h asks for, and
//   dot(operands, x, rows, sums): for each of 16 neurons, sums += the products of its operands in `rows` tile rows (a
//   multiple of 4) with the 4 * rows activations x.
#pragma once

#include "kernels/scales.h"
#include "kernels/unpack/unpack_block.h"

namespace tilepress {
namespace {

constexpr int kStepRows = 4;                // tile rows that hold 16 inputs, the least that a segment can have
constexpr int kStepInputs = 4 * kStepRows;  // inputs of a step
constexpr int kTileInputs = tile_inputs(8);

// One segment of a span: its inputs, and where its weights' scales lie.
struct Segment {
  int64_t index, begin, end, group;
};

template <class Work>
[[gnu::always_inline]] inline void for_segments(const SpanWeights& weights, const IntegerActivations& x,
                                                const Work& work) {
  const int64_t size = x.segment, inputs = weights.inputs, group_size = weights.format->group;
  int64_t index = 0, group = weights.first / group_size, left = group_size - weights.first % group_size;
  for (int64_t begin = 0; begin < inputs; begin += size, ++index) {
    work(Segment{index, begin, least(begin + size, inputs), group});
    left -= size;
    if (left <= 0) ++group, left = group_size;
  }
}

// Codes to the int8 operands that stand for them: sign-extended, and 8-bit unsigned ones less 128. Whole vectors.
inline void to_operands(const Format& format, uint8_t* codes, int64_t count) {
  if (format.zero_point ? format.bits < 8 : format.bits == 8) return;
  const uint8_t flip = static_cast<uint8_t>(1 << (format.bits - 1));
  const uint8_t less = format.zero_point ? 0 : flip;
  for (int64_t i = 0; i < count; i += kVectorBytes) {
    const ByteVector operands = (load_bytes(codes + i) ^ flip) - less;
    std::memcpy(codes + i, &operands, sizeof(operands));
  }
}

// What 8-bit unsigned codes and their zero points are lowered by, so that they fit int8.
inline int lowered(const Format& format) { return format.zero_point && format.bits == 8 ? 128 : 0; }

// What a dot product of operands, times 2^zero_shift, is too large by, for each unit of the sum of x.
inline int32_t zero_of(const SpanWeights& weights, int64_t group, int neuron) {
  return weights.zeros ? weights.zeros[group * kBlockNeurons + neuron] - lowered(*weights.format) : 0;
}

// The 16 scales of a group, as floats.
inline void load_scales(const SpanWeights& weights, int64_t group, float* scales) {
  if (weights.format->scale == ScaleType::fp32) {
    std::memcpy(scales, static_cast<const float*>(weights.scales) + group * kBlockNeurons,
                sizeof(float) * kBlockNeurons);
    return;
  }
  for (int neuron = 0; neuron < kBlockNeurons; ++neuron) {
    scales[neuron] = load_scale(weights.format->scale, weights.scales, group * kBlockNeurons + neuron);
  }
}

// Where in the scratch memory of a call its parts lie.
inline uint8_t* operands_in(const SpanWeights& weights, uint8_t* scratch) {
  return scratch + (weights.tiles + 1) * kMaxTileBytes;
}

// The zero points of a group as operands of a tile row, four inputs of each neuron. Where there is a mask they are
// codes.
inline ByteVector zero_operands(const SpanWeights& weights, int64_t group) {
  const int shift = zero_shift(*weights.format);
  uint32_t fours[kBlockNeurons];
  for (int neuron = 0; neuron < kBlockNeurons; ++neuron) {
    fours[neuron] = 0x01010101u * static_cast<uint8_t>(zero_of(weights, group, neuron) >> shift);
  }
  ByteVector operands;
  std::memcpy(&operands, fours, sizeof(operands));
  return operands;
}

// A dropped weight is zero, and its operand therefore the zero point of its group.
inline void drop_to_zero_points(const SpanWeights& weights, int64_t tile, const uint8_t* keep, uint8_t* operands) {
  int64_t last = -1;
  ByteVector zeros{};
  for (int row = 0; row < kBlockNeurons; ++row, keep += kVectorBytes, operands += kVectorBytes) {
    const int64_t input = least<int64_t>(tile * kTileInputs + 4 * row, weights.inputs - 1);
    const int64_t group = (weights.first + input) / weights.format->group;
    if (group != last) zeros = zero_operands(weights, last = group);
    const ByteVector kept = load_bytes(operands), filled = load_bytes(keep) != 0 ? kept : zeros;
    std::memcpy(operands, &filled, sizeof(filled));
  }
}

// The kept codes of the span, a byte each, and how many; -1 if the block has not so many. Streams can be read from
// every eighth code on, where a byte begins.
struct Kept {
  const uint8_t* codes;
  int64_t count;
};

template <class Simd>
Kept unpack_kept(const SpanWeights& weights, uint8_t* scratch) {
  const int bits = weights.format->bits;
  const int64_t count = count_bits(weights.mask, weights.tiles * tile_mask_bytes(8));
  if (weights.taken + count > weights.limit) return {nullptr, -1};
  if (bits == 8) return {weights.packed + weights.taken, count};
  const int64_t before = weights.taken % 8;
  Simd::unpack_stream(bits, weights.packed + weights.taken / 8 * bits, before + count, scratch);
  return {scratch + before, count};
}

// All operands of the span, tile after tile; returns the codes taken, or -1.
template <class Simd>
int64_t decode_operands(const SpanWeights& weights, uint8_t* operands, uint8_t* scratch) {
  const Format& format = *weights.format;
  const int64_t codes = weights.tiles * tile_codes(8);
  if (!weights.mask) {
    for (int64_t tile = 0; tile < weights.tiles; ++tile) {
      unpack_fields(format.bits, tile_codes(8) / kLineCodes, weights.packed + tile * tile_code_bytes(format.bits, 8),
                    operands + tile * tile_codes(8));
    }
    to_operands(format, operands, codes);
    return 0;
  }
  const Kept kept = unpack_kept<Simd>(weights, scratch);
  if (kept.count < 0) return -1;
  const uint8_t* from = kept.codes;
  const bool shifted = format.zero_point;
  alignas(64) uint8_t keep[kMaxTileBytes];
  for (int64_t tile = 0; tile < weights.tiles; ++tile) {
    uint8_t* to = operands + tile * tile_codes(8);
    from += Simd::expand(from, weights.mask + tile * tile_mask_bytes(8), tile_codes(8), to, shifted ? keep : nullptr);
    to_operands(format, to, tile_codes(8));
    if (shifted) drop_to_zero_points(weights, tile, keep, to);
  }
  return kept.count;
}

// Adds a segment's dot products to the span's sums. In 32 bits: a segment has at most 2048 inputs of eight bits, or 128
// of more, and codes times 2^zero_shift, as zero points, have eight.
inline void finish(const SpanWeights& weights, const IntegerActivations& x, const Segment& segment, int64_t row,
                   const int32_t* dots, float* sums) {
  const int64_t at = row * x.segment_stride + segment.index;
  const int shift = zero_shift(*weights.format);
  for (int neuron = 0; neuron < kBlockNeurons; ++neuron) {
    const int32_t dot = (dots[neuron] << shift) - zero_of(weights, segment.group, neuron) * x.sums[at];
    const int64_t index = segment.group * kBlockNeurons + neuron;
    const float value = x.units ? static_cast<float>(dot) * x.units[at] : static_cast<float>(dot);
    sums[neuron] = __builtin_fmaf(value, load_scale(weights.format->scale, weights.scales, index), sums[neuron]);
  }
}

template <class Simd>
void multiply_row(const SpanWeights& weights, const IntegerActivations& x, const int8_t* operands, int64_t row,
                  float* out) {
  float sums[kBlockNeurons] = {};
  for_segments(weights, x, [&](const Segment& segment) {
    int32_t dots[kBlockNeurons] = {};
    const int rows = static_cast<int>((segment.end - segment.begin + kStepInputs - 1) / kStepInputs) * kStepRows;
    const int8_t* from = operands + segment.begin * kBlockNeurons;
    if (x.fives) {
      const int8_t* line = x.digits[0] + (row / kNineBitRows * kNineBitLines + row % kNineBitRows) * x.stride;
      Simd::dot(from, line + x.stride + segment.begin, rows, dots);
      for (int32_t& dot : dots) dot *= kNineBitFactor;
      Simd::dot(from, line + segment.begin, rows, dots);
      return finish(weights, x, segment, row, dots, sums);
    }
    for (int digit = 0; digit < x.digit_count; ++digit) {
      for (int32_t& dot : dots) dot *= 1 << x.digit_bits;
      Simd::dot(from, x.digits[digit] + row * x.stride + segment.begin, rows, dots);
    }
    finish(weights, x, segment, row, dots, sums);
  });
  for (int neuron = 0; neuron < kBlockNeurons; ++neuron) out[neuron] += sums[neuron];
}

}  // namespace
}  // namespace tilepress
