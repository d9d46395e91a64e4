// Decodes a K-panel to bf16 tiles one code at a time; supports every format. Simd: see unpack_block.h.
#pragma once

#include "pack/unpack_block.h"
#include "quantize/scales.h"

namespace tilepress {
namespace {

constexpr int kTileElements = kBlockNeurons * tile_inputs(16);  // per bf16 tile

inline float value_of(const Format& format, uint32_t code) {
  if (format.rounding == Rounding::bf16) return bf16_to_float(static_cast<uint16_t>(code));
  if (format.rounding == Rounding::fp16) return fp16_to_float(static_cast<uint16_t>(code));
  return format.values[code];
}

// One tile of codes to one bf16 tile, if it has 16-bit operands, or two.
template <class Code>
void tile_to_bf16(const KPanel& weights, int64_t tile, const Code* codes, const uint8_t* keep, bool scaled,
                  uint16_t* out) {
  const Format& format = *weights.format;
  const int inputs = tile_inputs(weights.operand_bits);
  for (int input = 0; input < inputs; ++input) {
    const int64_t at_input = tile * inputs + input, group = (weights.first + at_input) / format.group;
    for (int neuron = 0; neuron < kBlockNeurons; ++neuron) {
      const int from = element_index(neuron, input, weights.operand_bits);
      const int to = input / 32 * kTileElements + element_index(neuron, input % 32, 16);
      const int64_t at = group * kBlockNeurons + neuron;
      float value = value_of(format, codes[from]);
      if (weights.zeros && at_input < weights.inputs)
        value -= static_cast<float>(weights.zeros[at]) * zero_step(format);
      if (scaled && at_input < weights.inputs) value *= load_scale(format.scale, weights.scales, at);
      out[to] = at_input < weights.inputs && (!keep || keep[from]) ? round_to_bf16(value) : uint16_t{0};
    }
  }
}

template <class Simd, class Code>
int64_t decode_sparse(const KPanel& weights, bool scaled, uint16_t* tiles, uint8_t* scratch) {
  alignas(64) Code codes[kMaxTileBytes];
  alignas(64) uint8_t keep[kMaxTileBytes];
  const int count = tile_codes(weights.operand_bits), mask_bytes = tile_mask_bytes(weights.operand_bits);
  const int64_t nonzeros = count_bits(weights.mask, weights.tiles * mask_bytes), before = weights.consumed % 8;
  if (weights.consumed + nonzeros > weights.limit) return -1;
  const Code* from = reinterpret_cast<const Code*>(scratch);
  if constexpr (sizeof(Code) == 2) {
    std::memcpy(scratch, weights.packed + weights.consumed * 2, static_cast<size_t>(nonzeros) * 2);
  } else {
    Simd::unpack_stream(weights.format->bits, weights.packed + weights.consumed / 8 * weights.format->bits,
                        before + nonzeros, scratch);
    from += before;
  }
  for (int64_t tile = 0; tile < weights.tiles; ++tile) {
    from += Simd::expand(from, weights.mask + tile * mask_bytes, count, codes, keep);
    tile_to_bf16(weights, tile, codes, keep, scaled, tiles + tile * count);
  }
  return nonzeros;
}

template <class Simd>
int64_t decode_any(const KPanel& weights, bool scaled, uint16_t* tiles, uint8_t* scratch) {
  const int bits = weights.format->bits, count = tile_codes(weights.operand_bits);
  if (weights.mask && bits == 16) return decode_sparse<Simd, uint16_t>(weights, scaled, tiles, scratch);
  if (weights.mask) return decode_sparse<Simd, uint8_t>(weights, scaled, tiles, scratch);
  for (int64_t tile = 0; tile < weights.tiles; ++tile) {
    const uint8_t* packed = weights.packed + tile * tile_code_bytes(bits, weights.operand_bits);
    alignas(64) uint16_t codes[kMaxTileBytes];
    if (bits == 16) {
      std::memcpy(codes, packed, static_cast<size_t>(count) * 2);
      tile_to_bf16(weights, tile, codes, nullptr, scaled, tiles + tile * count);
    } else {
      auto* bytes = reinterpret_cast<uint8_t*>(codes);
      unpack_fields(bits, count / kLineCodes, packed, bytes);
      tile_to_bf16(weights, tile, bytes, nullptr, scaled, tiles + tile * count);
    }
  }
  return 0;
}

}  // namespace
}  // namespace tilepress
