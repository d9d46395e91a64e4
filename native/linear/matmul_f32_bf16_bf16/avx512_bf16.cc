// Without a matrix unit: eight rows of activations, or the last four, share each row of weights. Missing rows of a
// partial row panel are multiplied too: row panels and `out` have room for them.
#include <immintrin.h>

#include <bit>
#include <cstring>

#include "quantize/scales.h"

namespace tilepress {
namespace {

constexpr int kRowsAtOnce = 8, kLastRows = 4;

// `rows` rows from `row` on, all of one row panel.
template <int rows>
void multiply_rows(const Bf16Product& product, int block, int64_t row) {
  constexpr int kRow = kVectorBytes / 2;
  const uint16_t* x = product.x.first + row / kTileRows * product.x.row_panel_stride + row % kTileRows * kRow;
  const uint16_t* weights = product.tiles[block];
  __m512 sums[rows];
  for (auto& sum : sums) sum = _mm512_setzero_ps();
  for (int64_t tile = 0; tile < product.count; ++tile, x += kTileRows * kRow) {
    for (int input = 0; input < kRow; input += 2, weights += kRow) {
      const auto pairs = std::bit_cast<__m512bh>(_mm512_loadu_si512(weights));
      for (int i = 0; i < rows; ++i) {
        int32_t pair;
        std::memcpy(&pair, x + i * kRow + input, 4);
        sums[i] = _mm512_dpbf16_ps(sums[i], pairs, std::bit_cast<__m512bh>(_mm512_set1_epi32(pair)));
      }
    }
  }
  const float* scales = product.scales[block];
  const __m512 scale = scales ? _mm512_loadu_ps(scales) : _mm512_set1_ps(1.0f);
  for (int i = 0; i < rows; ++i) {
    float* to = product.out[block] + (row + i) * kBlockNeurons;
    _mm512_storeu_ps(to, _mm512_fmadd_ps(sums[i], scale, _mm512_loadu_ps(to)));
  }
}

void matmul_f32_bf16_bf16(const Bf16Product& product) {
  for (int block = 0; block < 2 && product.tiles[block]; ++block) {
    int64_t row = 0;
    for (; row + kLastRows < product.x.rows; row += kRowsAtOnce) multiply_rows<kRowsAtOnce>(product, block, row);
    if (row < product.x.rows) multiply_rows<kLastRows>(product, block, row);
  }
}

TILEPRESS_KERNEL(matmul_f32_bf16_bf16);

}  // namespace
}  // namespace tilepress
