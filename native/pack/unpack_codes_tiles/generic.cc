// Compiled for: portable neon_dotprod avx512_vbmi2
#include "pack/unpack.h"

namespace tilepress {
namespace {

template <size_t unit>
void from_tile(const uint8_t* in, int64_t stride, int64_t tile, uint8_t* rows) {
  for (int neuron = 0; neuron < kBlockNeurons; ++neuron) {
    uint8_t* to = rows + (neuron * stride + tile * kBlockNeurons) * unit;
    for (int row = 0; row < kBlockNeurons; ++row) {
      std::memcpy(to + row * unit, in + (row * kBlockNeurons + neuron) * unit, unit);
    }
  }
}

void scatter_tile(const BlockShape& shape, int element_bytes, const void* in, int64_t tile, void* rows) {
  const int unit = 32 / shape.operand_bits * element_bytes;
  const auto scatter = unit == 2 ? from_tile<2> : from_tile<4>;
  scatter(static_cast<const uint8_t*>(in), shape.tiles * kBlockNeurons, tile, static_cast<uint8_t*>(rows));
}

void unpack_dense(const BlockShape& shape, const uint8_t* packed, void* codes) {
  alignas(64) uint8_t tile_buffer[kMaxTileBytes];
  const int count = tile_codes(shape.operand_bits);
  const int bytes = tile_code_bytes(shape.bits, shape.operand_bits);
  for (int64_t tile = 0; tile < shape.tiles; ++tile, packed += bytes) {
    if (shape.bits == 16) {
      std::memcpy(tile_buffer, packed, static_cast<size_t>(bytes));
      scatter_tile(shape, 2, tile_buffer, tile, codes);
    } else {
      unpack_fields(shape.bits, count / kLineCodes, packed, tile_buffer);
      scatter_tile(shape, 1, tile_buffer, tile, codes);
    }
  }
}

template <class Simd, class Code>
void unpack_sparse(const BlockShape& shape, const uint8_t* packed, const uint8_t* mask, void* codes, uint8_t* keep,
                   uint8_t* scratch) {
  alignas(64) Code tile_buffer[kMaxTileBytes / sizeof(Code)];
  alignas(64) uint8_t tile_keep[kMaxTileBytes];
  const int count = tile_codes(shape.operand_bits);
  const int64_t nonzero_count = count_bits(mask, shape.tiles * tile_mask_bytes(shape.operand_bits));
  Code* nonzeros = reinterpret_cast<Code*>(scratch);
  if (sizeof(Code) == 2) {
    std::memcpy(nonzeros, packed, static_cast<size_t>(nonzero_count) * sizeof(Code));
  } else {
    Simd::unpack_stream(shape.bits, packed, nonzero_count, scratch);
  }
  nonzeros[nonzero_count] = 0;
  for (int64_t tile = 0; tile < shape.tiles; ++tile, mask += tile_mask_bytes(shape.operand_bits)) {
    nonzeros += Simd::expand(nonzeros, mask, count, tile_buffer, tile_keep);
    scatter_tile(shape, sizeof(Code), tile_buffer, tile, codes);
    scatter_tile(shape, 1, tile_keep, tile, keep);
  }
}

void unpack_codes_tiles(const BlockShape& shape, const uint8_t* packed, const uint8_t* mask, void* codes, uint8_t* keep,
                        uint8_t* scratch) {
  if (!mask) return unpack_dense(shape, packed, codes);
  if (shape.bits == 16) return unpack_sparse<Unpack, uint16_t>(shape, packed, mask, codes, keep, scratch);
  unpack_sparse<Unpack, uint8_t>(shape, packed, mask, codes, keep, scratch);
}

TILEPRESS_KERNEL(unpack_codes_tiles);

}  // namespace
}  // namespace tilepress
