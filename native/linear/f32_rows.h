// Products of rows of float32 with weights that have become float32, of one block or two side by side.
#pragma once

#include "simd/simd.h"
#include "tilepress/linear.h"

namespace tilepress {
namespace {

// Rows and blocks per call of multiply_rows: as many as leave registers for the weights. With one block AVX-512 would
// load as often as it multiplies; two blocks share the loads of activations.
#if defined(__AVX512F__)
constexpr int kRowsTogether = 8, kBlocksTogether = 2;
#elif defined(__AVX2__)
constexpr int kRowsTogether = 6, kBlocksTogether = 1;
#elif defined(__aarch64__)
constexpr int kRowsTogether = 4, kBlocksTogether = 1;
#else
constexpr int kRowsTogether = 2, kBlocksTogether = 1;
#endif

// Some rows of a product with `blocks` blocks. Each output has one accumulator, from the first input to the last: so a
// result is batch-invariant, and the same on every instruction set. Without early unrolling gcc keeps accumulators in
// memory.
template <int rows, int blocks>
void multiply_rows(const F32Product& product, int64_t first) {
  constexpr int vectors = blocks * kBlockVectors;
  const float* x = product.x.x + first * product.x.stride;
  const int64_t stride = product.x.stride, inputs = product.inputs;
  float* out[blocks];
  for (int block = 0; block < blocks; ++block) out[block] = product.out[block] + first * kBlockNeurons;
  const auto sums_at = [&](int row, int i) {
    return out[i / kBlockVectors] + row * kBlockNeurons + i % kBlockVectors * kLanes;
  };
  Floats sums[rows][vectors];
#pragma GCC unroll 8
  for (int row = 0; row < rows; ++row) {
#pragma GCC unroll 8
    for (int i = 0; i < vectors; ++i) sums[row][i] = load<Floats>(sums_at(row, i));
  }
  for (int64_t input = 0; input < inputs; ++input) {
    Floats weights[vectors];
    for (int i = 0; i < vectors; ++i) {
      weights[i] =
          load<Floats>(product.weights[i / kBlockVectors] + input * kBlockNeurons + i % kBlockVectors * kLanes);
    }
#pragma GCC unroll 8
    for (int row = 0; row < rows; ++row) {
#pragma GCC unroll 8
      for (int i = 0; i < vectors; ++i) {
        sums[row][i] = fma(weights[i], x[row * stride + input], sums[row][i]);
      }
    }
  }
#pragma GCC unroll 8
  for (int row = 0; row < rows; ++row) {
#pragma GCC unroll 8
    for (int i = 0; i < vectors; ++i) store(sums[row][i], sums_at(row, i));
  }
}

// Every row from `row` on, as many at once as there are left.
template <int blocks, int rows = kRowsTogether>
void multiply_batch(const F32Product& product, int64_t row = 0) {
  for (; row + rows <= product.x.batch; row += rows) multiply_rows<rows, blocks>(product, row);
  if constexpr (rows > 1) multiply_batch<blocks, rows / 2>(product, row);
}

}  // namespace
}  // namespace tilepress
