// Products of rows of float32 with weights that have become float32, of one block or two side by side. In a nameless
// namespace for the reason that pack_block.h gives.
#pragma once

#include "kernels/lanes.h"

namespace tilepress {
namespace {

// Rows of activations multiplied together, with so many blocks: as many as leave registers for the weights. AVX-512
// would load as often as it multiplies, were it not for two blocks that share what is loaded of the activations.
#if defined(__AVX512F__)
constexpr int kRowsTogether = 8, kBlocksTogether = 2;
#elif defined(__AVX2__)
constexpr int kRowsTogether = 6, kBlocksTogether = 1;
#elif defined(__aarch64__)
constexpr int kRowsTogether = 4, kBlocksTogether = 1;
#else
constexpr int kRowsTogether = 2, kBlocksTogether = 1;
#endif
constexpr int kChains = 8;  // sums at least, so that an addition need not wait for the one before

// Some rows of a product with `blocks` blocks. Few rows have several sums each, of every so many inputs. What is not
// unrolled early gcc has in memory.
template <int rows, int blocks>
void multiply_rows(const F32Product& product, int64_t first) {
  constexpr int vectors = blocks * kParts, turns = most(1, kChains / (rows * vectors));
  const float* x = product.x.x + first * product.x.stride;
  const int64_t stride = product.x.stride, inputs = product.inputs;
  float* out[blocks];
  for (int block = 0; block < blocks; ++block) out[block] = product.out[block] + first * kBlockNeurons;
  const auto sums_at = [&](int row, int i) { return out[i / kParts] + row * kBlockNeurons + i % kParts * kLanes; };
  Floats sums[turns][rows][vectors];
#pragma GCC unroll 8
  for (int turn = 0; turn < turns; ++turn) {
#pragma GCC unroll 8
    for (int row = 0; row < rows; ++row) {
#pragma GCC unroll 8
      for (int i = 0; i < vectors; ++i) sums[turn][row][i] = turn ? Floats{} : load<Floats>(sums_at(row, i));
    }
  }
  const auto add = [&](int64_t input, int turn) __attribute__((always_inline)) {
    Floats weights[vectors];
    for (int i = 0; i < vectors; ++i) {
      weights[i] = load<Floats>(product.weights[i / kParts] + input * kBlockNeurons + i % kParts * kLanes);
    }
#pragma GCC unroll 8
    for (int row = 0; row < rows; ++row) {
#pragma GCC unroll 8
      for (int i = 0; i < vectors; ++i) {
        sums[turn][row][i] = fused(weights[i], x[row * stride + input], sums[turn][row][i]);
      }
    }
  };
  int64_t input = 0;
  for (; input + turns <= inputs; input += turns) {
#pragma GCC unroll 8
    for (int turn = 0; turn < turns; ++turn) add(input + turn, turn);
  }
  for (; input < inputs; ++input) add(input, 0);
#pragma GCC unroll 8
  for (int row = 0; row < rows; ++row) {
#pragma GCC unroll 8
    for (int i = 0; i < vectors; ++i) {
      Floats sum = sums[0][row][i];
#pragma GCC unroll 8
      for (int turn = 1; turn < turns; ++turn) sum += sums[turn][row][i];
      store(sum, sums_at(row, i));
    }
  }
}

// Every row from `row` on, as many at once as there are left.
template <int blocks, int rows = kRowsTogether>
void multiply_batch(const F32Product& product, int64_t row = 0) {
  for (; row + rows <= product.x.batch; row += rows) multiply_rows<rows, blocks>(product, row);
  if constexpr (rows > 1) multiply_batch<blocks, rows / 2>(product, row);
}

// Both blocks, or the one that there is.
inline void multiply_blocks(const F32Product& product) {
  if (kBlocksTogether == 2 && product.weights[1]) return multiply_batch<kBlocksTogether>(product);
  for (int block = 0; block < 2 && product.weights[block]; ++block) {
    multiply_batch<1>({{product.weights[block]}, product.inputs, product.x, {product.out[block]}});
  }
}

}  // namespace
}  // namespace tilepress
