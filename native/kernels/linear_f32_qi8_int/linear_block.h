// y = x · Wᵀ for one block of 16 neurons, int8 activations and integer weights. In a nameless namespace for the reason
// that pack_block.h gives. Integer dot products over each group of inputs are exact; then, group after group,
//   sum += float(dot) * scale     rounded after the product and after the sum, on every instruction set alike.
// Simd brings what unpack_block.h asks for, and
//   dot(operands, x, rows, sums): for each of 16 neurons, sums += the products of its operands in `rows` tile rows (a
//   multiple of 4) with the 4 * rows activations x.
#pragma once

#include "kernels/scales.h"
#include "kernels/unpack/unpack_block.h"

namespace tilepress {
namespace {

constexpr int kStepRows = 4;                // tile rows that hold 16 inputs, the least that a group can have
constexpr int kStepInputs = 4 * kStepRows;  // inputs of a step
constexpr int kTileInputs = tile_inputs(8);

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

// The 16 scales of a group, as floats.
inline void load_scales(const LinearBlock& block, int64_t group, float* scales) {
  const int64_t at = group * kBlockNeurons;
  if (block.format->scale == ScaleType::bf16) {
    const auto* halves = static_cast<const uint16_t*>(block.scales) + at;
    for (int neuron = 0; neuron < kBlockNeurons; ++neuron) scales[neuron] = bf16_to_float(halves[neuron]);
  } else if (block.format->scale == ScaleType::fp16) {
    const auto* halves = static_cast<const uint16_t*>(block.scales) + at;
    for (int neuron = 0; neuron < kBlockNeurons; ++neuron) scales[neuron] = fp16_to_float(halves[neuron]);
  } else {
    for (int neuron = 0; neuron < kBlockNeurons; ++neuron) {
      scales[neuron] = load_scale(block.format->scale, block.scales, at + neuron);
    }
  }
}

// Adds the finished group's sums, times its scales, to the outputs, and clears them.
inline void flush(const LinearBlock& block, int64_t group, int64_t row, const float* scales, int32_t* sums,
                  float* out) {
  if (block.zeros) {
    const int32_t sum = block.group_sums[row * block.groups + group];
    const uint8_t* zeros = block.zeros + group * kBlockNeurons;
    for (int neuron = 0; neuron < kBlockNeurons; ++neuron)
      sums[neuron] -= (zeros[neuron] - lowered(*block.format)) * sum;
  }
  for (int neuron = 0; neuron < kBlockNeurons; ++neuron) {
    const float product = static_cast<float>(sums[neuron]) * scales[neuron];
    out[neuron] += product;
    sums[neuron] = 0;
  }
}

// A dropped weight is zero, and its operand therefore the zero point of its group.
inline void drop_to_zero_points(const LinearBlock& block, int64_t tile, const uint8_t* keep, uint8_t* operands) {
  for (int row = 0; row < kBlockNeurons; ++row, keep += kVectorBytes, operands += kVectorBytes) {
    const int64_t input = least<int64_t>(tile * kTileInputs + 4 * row, block.cols - 1);
    const uint8_t* zeros = block.zeros + input / block.format->group * kBlockNeurons;
    for (int i = 0; i < kVectorBytes; ++i) {
      operands[i] = keep[i] ? operands[i] : static_cast<uint8_t>(zeros[i / 4] - lowered(*block.format));
    }
  }
}

// One tile of operands times every row of activations. Groups end at multiples of 16 inputs, so at the end of a step.
template <class Simd>
void multiply_tile(const LinearBlock& block, const uint8_t* operands, int64_t tile, int32_t* sums, float* out) {
  const int64_t first = tile * kTileInputs;
  const int64_t inputs = least<int64_t>(kTileInputs, block.cols - first);
  for (int64_t at = 0; at < inputs;) {
    const int64_t group = (first + at) / block.format->group;
    const int64_t group_end = least((group + 1) * block.format->group, block.cols) - first;
    const int64_t end = least<int64_t>(group_end, kTileInputs);
    const bool done = group_end <= kTileInputs;
    float scales[kBlockNeurons];
    if (done) load_scales(block, group, scales);
    const int rows = static_cast<int>((end - at + kStepInputs - 1) / kStepInputs) * kStepRows;
    for (int64_t row = 0; row < block.batch; ++row) {
      Simd::dot(reinterpret_cast<const int8_t*>(operands) + at * kBlockNeurons,
                block.x + row * block.x_stride + first + at, rows, sums + row * kBlockNeurons);
      if (done) flush(block, group, row, scales, sums + row * kBlockNeurons, out + row * kBlockNeurons);
    }
    at = end;
  }
}

template <class Simd>
void linear_block_with(const LinearBlock& block, float* out, int32_t* sums, uint8_t* scratch) {
  alignas(64) uint8_t operands[kMaxTileBytes], keep[kMaxTileBytes];
  const Format& format = *block.format;
  const uint8_t *packed = block.packed, *mask = block.mask, *kept = scratch;
  for (int64_t i = 0; i < block.batch * kBlockNeurons; ++i) out[i] = 0.0f, sums[i] = 0;
  if (mask) {
    Simd::unpack_stream(format.bits, packed, block.kept, scratch);
    to_operands(format, scratch, block.kept);
    scratch[block.kept] = 0;
  }
  for (int64_t tile = 0; tile < block.tiles; ++tile) {
    if (mask) {
      kept += Simd::expand(kept, mask, tile_codes(8), operands, keep);
      mask += tile_mask_bytes(8);
      if (block.zeros) drop_to_zero_points(block, tile, keep, operands);
    } else {
      unpack_fields(format.bits, tile_codes(8) / kLineCodes, packed, operands);
      to_operands(format, operands, tile_codes(8));
      packed += tile_code_bytes(format.bits, 8);
    }
    multiply_tile<Simd>(block, operands, tile, sums, out);
  }
}

}  // namespace
}  // namespace tilepress
