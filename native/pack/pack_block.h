// One block of codes into the bytes that layout.py describes. Simd brings
//   compact(codes, keep, count, nonzeros, mask): the non-zeros side by side, and the keep bytes as mask bits; returns
//   how many non-zeros there are. It may write one vector past the last.
#pragma once

#include <cstring>

#include "simd/simd.h"
#include "tilepress/pack.h"

namespace tilepress {
namespace {

// A tile's codes (or keep bytes) from rows to index order. `unit`: bytes of one neuron in one tile row; every tile has
// kBlockNeurons rows.
template <size_t unit>
void to_tile(const uint8_t* rows, int64_t stride, int64_t tile, uint8_t* out) {
  for (int neuron = 0; neuron < kBlockNeurons; ++neuron) {
    const uint8_t* from = rows + (neuron * stride + tile * kBlockNeurons) * unit;
    for (int row = 0; row < kBlockNeurons; ++row) {
      std::memcpy(out + (row * kBlockNeurons + neuron) * unit, from + row * unit, unit);
    }
  }
}

void gather_tile(const BlockShape& shape, int element_bytes, const void* rows, int64_t tile, void* out) {
  const int unit = 32 / shape.operand_bits * element_bytes;
  const auto gather = unit == 2 ? to_tile<2> : to_tile<4>;
  gather(static_cast<const uint8_t*>(rows), shape.tiles * kBlockNeurons, tile, static_cast<uint8_t*>(out));
}

void pack_fields(int bits, int lines, const uint8_t* codes, uint8_t* out) {
  for (const CodeField& field : kCodeFields[bits]) {
    if (!field.width) return;
    const int per_byte = 8 / field.width;
    const uint8_t mask = static_cast<uint8_t>((1 << field.width) - 1);
    for (int line = 0; line < lines; line += per_byte, out += kVectorBytes) {
      ByteVector all = {};
      for (int part = 0; part < per_byte; ++part) {
        all |= (load<ByteVector>(codes + (line + part) * kLineCodes) >> field.shift & mask) << part * field.width;
      }
      store(all, out);
    }
  }
}

void pack_dense(const BlockShape& shape, const void* codes, uint8_t* packed) {
  alignas(64) uint8_t tile_buffer[kMaxTileBytes];
  const int count = tile_codes(shape.operand_bits);
  const int bytes = tile_code_bytes(shape.bits, shape.operand_bits);
  for (int64_t tile = 0; tile < shape.tiles; ++tile, packed += bytes) {
    if (shape.bits == 16) {
      gather_tile(shape, 2, codes, tile, tile_buffer);
      std::memcpy(packed, tile_buffer, static_cast<size_t>(bytes));
    } else {
      gather_tile(shape, 1, codes, tile, tile_buffer);
      pack_fields(shape.bits, count / kLineCodes, tile_buffer, packed);
    }
  }
}

// Eight codes of `bits` bits, one per byte, to 8 * bits bits, by closing the gaps pair by pair.
inline uint64_t squeeze(uint64_t codes, int bits) {
  codes = (codes & 0x00ff00ff00ff00ff) | (codes & 0xff00ff00ff00ff00) >> (8 - bits);
  codes = (codes & 0x0000ffff0000ffff) | (codes & 0xffff0000ffff0000) >> (16 - 2 * bits);
  return (codes & 0x00000000ffffffff) | (codes & 0xffffffff00000000) >> (32 - 4 * bits);
}

// Returns the bytes written.
int64_t pack_stream(int bits, const uint8_t* codes, int64_t count, uint8_t* out) {
  for (int64_t i = 0; i < count; i += 8) {
    uint64_t eight;
    std::memcpy(&eight, codes + i, 8);
    const int64_t left = count - i < 8 ? count - i : 8;
    if (left < 8) eight &= (uint64_t{1} << 8 * left) - 1;
    const uint64_t packed = squeeze(eight, bits);
    std::memcpy(out + i / 8 * bits, &packed, static_cast<size_t>(stream_bytes(bits, left)));
  }
  return stream_bytes(bits, count);
}

int64_t pack_stream(int, const uint16_t* codes, int64_t count, uint8_t* out) {
  std::memcpy(out, codes, static_cast<size_t>(count) * sizeof(*codes));
  return count * static_cast<int64_t>(sizeof(*codes));
}

// Non-zeros wait in a small buffer until eight of them make whole bytes.
template <class Simd, class Code>
void pack_sparse(const BlockShape& shape, const void* codes, const uint8_t* keep, uint8_t* packed, uint8_t* mask) {
  constexpr size_t kSlack = kSlackBytes / sizeof(Code), kTile = kMaxTileBytes / sizeof(Code);
  alignas(64) Code tile_buffer[kTile];
  alignas(64) uint8_t tile_keep[kMaxTileBytes];
  alignas(64) Code waiting[8 + kTile + kSlack];
  const int count = tile_codes(shape.operand_bits);
  int64_t held = 0;
  for (int64_t tile = 0; tile < shape.tiles; ++tile, mask += tile_mask_bytes(shape.operand_bits)) {
    gather_tile(shape, sizeof(Code), codes, tile, tile_buffer);
    gather_tile(shape, 1, keep, tile, tile_keep);
    held += Simd::compact(tile_buffer, tile_keep, count, waiting + held, mask);
    const int64_t whole = held & ~int64_t{7};
    packed += pack_stream(shape.bits, waiting, whole, packed);
    held -= whole;
    std::memmove(waiting, waiting + whole, static_cast<size_t>(held) * sizeof(Code));
  }
  pack_stream(shape.bits, waiting, held, packed);
}

template <class Simd>
void pack_block_with(const BlockShape& shape, const void* codes, const uint8_t* keep, uint8_t* packed, uint8_t* mask) {
  if (!keep) return pack_dense(shape, codes, packed);
  if (shape.bits == 16) return pack_sparse<Simd, uint16_t>(shape, codes, keep, packed, mask);
  pack_sparse<Simd, uint8_t>(shape, codes, keep, packed, mask);
}

}  // namespace
}  // namespace tilepress
