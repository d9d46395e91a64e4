// Without a matrix unit: eight rows of activations share each row of weights.
#include <immintrin.h>

#include <bit>
#include <cstring>

#include "quantize/scales.h"

namespace tilepress {
namespace {

constexpr int kRows = 8, kRow = kVectorBytes / 2;

// kRows rows of activations from `x` on × one block; rows past the last are in the row panel too.
void multiply_rows(const uint16_t* x, const uint16_t* weights, int64_t count, bool first, float* to) {
  __m512 sums[kRows];
  for (int i = 0; i < kRows; ++i) sums[i] = first ? _mm512_setzero_ps() : _mm512_loadu_ps(to + i * kBlockNeurons);
  for (int64_t tile = 0; tile < count; ++tile, x += kTileRows * kRow) {
    for (int input = 0; input < kRow; input += 2, weights += kRow) {
      const auto pairs = std::bit_cast<__m512bh>(_mm512_loadu_si512(weights));
      for (int i = 0; i < kRows; ++i) {
        int32_t pair;
        std::memcpy(&pair, x + i * kRow + input, 4);
        sums[i] = _mm512_dpbf16_ps(sums[i], pairs, std::bit_cast<__m512bh>(_mm512_set1_epi32(pair)));
      }
    }
  }
  for (int i = 0; i < kRows; ++i) _mm512_storeu_ps(to + i * kBlockNeurons, sums[i]);
}

void matmul_f32_bf16_bf16(const TileProduct& product) {
  const auto* x = static_cast<const uint8_t*>(product.x);
  for (int64_t block = 0; block < product.blocks; ++block) {
    const auto* tiles = static_cast<const uint16_t*>(product.tiles[block]);
    auto* sums = reinterpret_cast<float*>(static_cast<uint8_t*>(product.sums) + block * product.block_stride);
    for (int64_t row = 0; row < product.rows; row += kRows) {
      const auto* rows = reinterpret_cast<const uint16_t*>(x + row / kTileRows * product.row_panel_stride);
      multiply_rows(rows + row % kTileRows * kRow, tiles, product.count, product.first, sums + row * kBlockNeurons);
    }
  }
}

TILEPRESS_KERNEL(matmul_f32_bf16_bf16);

}  // namespace
}  // namespace tilepress
