// The same products without a matrix unit: eight rows of activations share each row of weights.
#include <immintrin.h>

#include <bit>
#include <cstring>

#include "kernels/scales.h"

namespace tilepress {
namespace {

template <int rows>
void multiply_rows(const TileProduct& product, int block, int64_t row) {
  const auto* x = static_cast<const uint16_t*>(product.x) + row * product.stride;
  const auto* tiles = static_cast<const uint16_t*>(product.tiles[block]);
  float* out = product.out[block] + row * kBlockNeurons;
  for (int64_t tile = 0; tile < product.count;) {
    const int64_t segment = tile / product.segment, end = least((segment + 1) * product.segment, product.count);
    __m512 sums[rows];
    for (auto& sum : sums) sum = _mm512_setzero_ps();
    for (int64_t at = tile * kTileRows; at < end * kTileRows; ++at) {
      const auto weights = std::bit_cast<__m512bh>(_mm512_loadu_si512(tiles + at * 2 * kBlockNeurons));
      for (int i = 0; i < rows; ++i) {
        int32_t pair;
        std::memcpy(&pair, x + i * product.stride + 2 * at, 4);
        sums[i] = _mm512_dpbf16_ps(sums[i], weights, std::bit_cast<__m512bh>(_mm512_set1_epi32(pair)));
      }
    }
    const float* scales = product.scales[block];
    const __m512 scale = scales ? _mm512_loadu_ps(scales + segment * kBlockNeurons) : _mm512_set1_ps(1.0f);
    for (int i = 0; i < rows; ++i) {
      float* to = out + i * kBlockNeurons;
      _mm512_storeu_ps(to, _mm512_fmadd_ps(sums[i], scale, _mm512_loadu_ps(to)));
    }
    tile = end;
  }
}

}  // namespace

void avx512::multiply_bf16_tiles(const TileProduct& product) {
  for (int block = 0; block < 2 && product.tiles[block]; ++block) {
    int64_t row = 0;
    for (; row + 8 <= product.batch; row += 8) multiply_rows<8>(product, block, row);
    for (; row < product.batch; ++row) multiply_rows<1>(product, block, row);
  }
}

}  // namespace tilepress
