// Integer activations × integer weights for one block over a K-panel. Dot products over a segment are exact integers;
// then, segment after segment,
//   sum = fma(float(dot) · unit, scale, sum)
// which rounds once, since units are powers of two: results are bit-exact on every instruction set.
//
// This header supports all weights: decode the whole K-panel to int8 operands, then multiply. Simd provides what
// unpack_block.h needs, and
//   dot(operands, x, rows, sums)   sums [16] += dot products of 4 · rows inputs: operands [rows, 16, 4], x [rows, 4];
//                                  rows is a multiple of 4
#pragma once

#include "pack/unpack_block.h"
#include "quantize/scales.h"

namespace tilepress {
namespace {

// Whether a decoder's weights have zero points, known at compile time or not.
enum class HasZeroPoints { never, sometimes, always };

// A step is the smallest segment: 16 inputs, four rows of a tile.
constexpr int kStepRows = 4;
constexpr int kStepInputs = 4 * kStepRows;
constexpr int kTileInputs = tile_inputs(8);

// One segment of a K-panel.
struct Segment {
  int64_t index;       // in the K-panel
  int64_t begin, end;  // inputs, from the K-panel's first
  int64_t group;       // of the block's scales and zero points
};

template <class Work>
[[gnu::always_inline]] inline void for_segments(const KPanel& weights, const IntegerActivations& x, const Work& work) {
  const int64_t size = x.segment, inputs = weights.inputs, group_size = weights.format->group;
  int64_t index = 0, group = weights.first / group_size, left = group_size - weights.first % group_size;
  for (int64_t begin = 0; begin < inputs; begin += size, ++index) {
    work(Segment{index, begin, least(begin + size, inputs), group});
    left -= size;
    if (left <= 0) ++group, left = group_size;
  }
}

// Quarters of a line of 64 codes: as bytes, and as pairs of bytes.
using Sixteen [[gnu::vector_size(16)]] = uint8_t;
using EightPairs [[gnu::vector_size(16)]] = uint16_t;

// Calls work(address) for each `part` bytes of `count` codes, rounded up to whole lines.
template <class Work>
[[gnu::always_inline]] inline void for_parts(uint8_t* codes, int64_t count, int part, const Work& work) {
  for (int64_t line = 0; line < count; line += kLineCodes) {
    for (int at = 0; at < kLineCodes; at += part) work(codes + line + at);
  }
}

// Replaces 4-bit codes by the integers they stand for. Whole lines.
inline void look_up_integers(const Format& format, uint8_t* codes, int64_t count) {
  const auto table = load<Sixteen>(format.integers);
  for_parts(codes, count, sizeof(Sixteen), [&](uint8_t* at) __attribute__((always_inline)) {
    const Sixteen operands = __builtin_shuffle(table, load<Sixteen>(at));
    std::memcpy(at, &operands, sizeof(operands));
  });
}

// Reorders lines of 16-bit tiles (two rows, two inputs per neuron) to lines of 8-bit tiles (one row, four inputs).
inline void pairs_to_fours(uint8_t* operands, int64_t count) {
  const EightPairs first = {0, 8, 1, 9, 2, 10, 3, 11}, second = {4, 12, 5, 13, 6, 14, 7, 15};
  for (int64_t i = 0; i < count; i += kLineCodes) {
    EightPairs in[4], out[4];
    std::memcpy(in, operands + i, sizeof(in));
    for (int half = 0; half < 2; ++half) {
      out[2 * half] = __builtin_shuffle(in[half], in[half + 2], first);
      out[2 * half + 1] = __builtin_shuffle(in[half], in[half + 2], second);
    }
    std::memcpy(operands + i, out, sizeof(out));
  }
}

// Replaces codes by int8 operands: looked up; or sign-extended; or, if unsigned 8-bit, minus 128. Whole lines.
inline void to_operands(const Format& format, uint8_t* codes, int64_t count) {
  if (format.integers) return look_up_integers(format, codes, count);
  if (format.zero_point ? format.bits < 8 : format.bits == 8) return;
  const uint8_t flip = static_cast<uint8_t>(1 << (format.bits - 1));
  const uint8_t offset = format.zero_point ? 0 : flip;
  for_parts(codes, count, kSimdBytes, [&](uint8_t* at) __attribute__((always_inline)) {
    const Bytes operands = (load<Bytes>(at) ^ flip) - offset;
    std::memcpy(at, &operands, sizeof(operands));
  });
}

// Subtracted from unsigned 8-bit codes, and their zero points, so that they fit int8.
inline int code_offset(const Format& format) { return format.zero_point && format.bits == 8 ? 128 : 0; }

// Zero point of a neuron, in the offset of its operands: dot product of weights = (dot product of operands) ·
// 2^zero_shift - zero_of · (sum of x).
inline int32_t zero_of(const KPanel& weights, int64_t group, int neuron) {
  return weights.zeros ? weights.zeros[group * kBlockNeurons + neuron] - code_offset(*weights.format) : 0;
}

// The 16 scales of a group as float32.
inline void load_scales(const KPanel& weights, int64_t group, float* scales) {
  if (weights.format->scale == ScaleType::fp32) {
    std::memcpy(scales, static_cast<const float*>(weights.scales) + group * kBlockNeurons,
                sizeof(float) * kBlockNeurons);
    return;
  }
  for (int neuron = 0; neuron < kBlockNeurons; ++neuron) {
    scales[neuron] = load_scale(weights.format->scale, weights.scales, group * kBlockNeurons + neuron);
  }
}

// Part of `scratch` for decoded operands; the non-zeros are before it.
inline uint8_t* operands_in(const KPanel& weights, uint8_t* scratch) {
  return scratch + (weights.tiles + 1) * kMaxTileBytes;
}

// Zero points of a group, as a tile row of operands: four inputs of each neuron. For sparse weights, whose zero points
// are whole codes.
inline ByteVector zero_operands(const KPanel& weights, int64_t group) {
  const int shift = zero_shift(*weights.format);
  uint32_t fours[kBlockNeurons];
  for (int neuron = 0; neuron < kBlockNeurons; ++neuron) {
    fours[neuron] = 0x01010101u * static_cast<uint8_t>(zero_of(weights, group, neuron) >> shift);
  }
  ByteVector operands;
  std::memcpy(&operands, fours, sizeof(operands));
  return operands;
}

// Sets the operands of dropped weights, which are zero, to the zero point of their group.
inline void fill_zero_points(const KPanel& weights, int64_t tile, const uint8_t* keep, uint8_t* operands) {
  int64_t last = -1;
  ByteVector zeros{};
  for (int row = 0; row < kBlockNeurons; ++row, keep += kVectorBytes, operands += kVectorBytes) {
    const int64_t input = least<int64_t>(tile * kTileInputs + 4 * row, weights.inputs - 1);
    const int64_t group = (weights.first + input) / weights.format->group;
    if (group != last) zeros = zero_operands(weights, last = group);
    const ByteVector nonzeros = load<ByteVector>(operands), filled = load<ByteVector>(keep) != 0 ? nonzeros : zeros;
    std::memcpy(operands, &filled, sizeof(filled));
  }
}

// The non-zeros of a K-panel, one byte each; count is -1 if the block has fewer. Every eighth code of a bit stream
// starts at a byte, so up to kNonzerosBefore codes of the previous K-panel are unpacked in front of them.
constexpr int kNonzerosBefore = 7;
struct Nonzeros {
  const uint8_t* codes;
  int64_t count;
};

template <class Simd>
Nonzeros unpack_nonzeros(const KPanel& weights, uint8_t* scratch) {
  const int bits = weights.format->bits;
  const int64_t count = count_bits(weights.mask, weights.tiles * tile_mask_bytes(weights.operand_bits));
  if (weights.consumed + count > weights.limit) return {nullptr, -1};
  if (bits == 8) return {weights.packed + weights.consumed, count};
  const int64_t before = weights.consumed % 8;
  Simd::unpack_stream(bits, weights.packed + weights.consumed / 8 * bits, before + count, scratch);
  return {scratch + before, count};
}

// Operands of sparse weights in the order of their tiles. Codes are looked up before they are expanded: what is dropped
// is 0 then, which code 0 need not stand for.
template <class Simd>
int64_t expand_operands(const KPanel& weights, uint8_t* operands, uint8_t* scratch) {
  const Format& format = *weights.format;
  const int count = tile_codes(weights.operand_bits), mask_bytes = tile_mask_bytes(weights.operand_bits);
  const Nonzeros nonzeros = unpack_nonzeros<Simd>(weights, scratch);
  if (nonzeros.count < 0) return -1;
  if (format.integers) look_up_integers(format, scratch, nonzeros.count + kNonzerosBefore);
  const uint8_t* from = nonzeros.codes;
  const bool zero_points = format.zero_point;
  alignas(64) uint8_t keep[kMaxTileBytes];
  for (int64_t tile = 0; tile < weights.tiles; ++tile) {
    uint8_t* to = operands + tile * count;
    from += Simd::expand(from, weights.mask + tile * mask_bytes, count, to, zero_points ? keep : nullptr);
    if (!format.integers) to_operands(format, to, count);
    if (zero_points) fill_zero_points(weights, tile, keep, to);
  }
  return nonzeros.count;
}

// All operands of the K-panel, in the order of 8-bit tiles. Returns what linear kernels return.
template <class Simd>
int64_t decode_operands(const KPanel& weights, uint8_t* operands, uint8_t* scratch) {
  const Format& format = *weights.format;
  const int operand_bits = weights.operand_bits, tile = tile_codes(operand_bits);
  const int64_t codes = weights.tiles * tile;
  int64_t consumed = 0;
  if (!weights.mask) {
    const int bytes = tile_code_bytes(format.bits, operand_bits);
    for (int64_t i = 0; i < weights.tiles; ++i) {
      unpack_fields(format.bits, tile / kLineCodes, weights.packed + i * bytes, operands + i * tile);
    }
    to_operands(format, operands, codes);
  } else {
    consumed = expand_operands<Simd>(weights, operands, scratch);
  }
  if (consumed >= 0 && operand_bits == 16) pairs_to_fours(operands, codes);
  return consumed;
}

// Adds a segment's dot products, scaled, to the K-panel's sums. int32 suffices: a segment has at most 2048 inputs of
// eight bits, or 128 of more, and codes · 2^zero_shift have eight bits, as zero points.
inline void add_segment(const KPanel& weights, const IntegerActivations& x, const Segment& segment, int64_t row,
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
void multiply_row(const KPanel& weights, const IntegerActivations& x, const int8_t* operands, int64_t row, float* out) {
  float sums[kBlockNeurons] = {};
  for_segments(weights, x, [&](const Segment& segment) {
    int32_t dots[kBlockNeurons] = {};
    const int rows = static_cast<int>((segment.end - segment.begin + kStepInputs - 1) / kStepInputs) * kStepRows;
    const int8_t* from = operands + segment.begin * kBlockNeurons;
    if (x.nine_bit_lines) {
      const int8_t* line = x.limbs[0] + (row / kNineBitRows * kNineBitLines + row % kNineBitRows) * x.stride;
      Simd::dot(from, line + x.stride + segment.begin, rows, dots);
      for (int32_t& dot : dots) dot *= kNineBitFactor;
      Simd::dot(from, line + segment.begin, rows, dots);
      return add_segment(weights, x, segment, row, dots, sums);
    }
    for (int limb = 0; limb < x.limb_count; ++limb) {
      for (int32_t& dot : dots) dot *= 1 << x.limb_bits;
      Simd::dot(from, x.limbs[limb] + row * x.stride + segment.begin, rows, dots);
    }
    add_segment(weights, x, segment, row, dots, sums);
  });
  for (int neuron = 0; neuron < kBlockNeurons; ++neuron) out[neuron] += sums[neuron];
}

}  // namespace
}  // namespace tilepress
