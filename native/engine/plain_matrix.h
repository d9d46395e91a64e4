// Weights that are not packed: float32, as kernels take decoded ones.
#pragma once

#include "dispatch/checks.h"
#include "dispatch/linear.h"
#include "dispatch/memory.h"

namespace tilepress {

// Results are batch-invariant: one sum for each output, from the first input to the last.
class PlainMatrix {
 public:
  // weights [rows, cols], of which it keeps a copy.
  PlainMatrix(const float* weights, int64_t rows, int64_t cols);

  int64_t rows() const { return rows_; }
  int64_t cols() const { return cols_; }

  // y [batch, rows] = x [batch, cols] · Wᵀ + bias, which may be null.
  void multiply(const float* x, int64_t batch, const float* bias, float* y, int threads) const;
  // Some neurons of it: y [batch, neurons.count], from one row to the next `stride`. The bias is of all neurons.
  void multiply(const Neurons& neurons, const float* x, int64_t batch, const float* bias, float* y, int64_t stride,
                int threads) const;
  // Rows `ids`, to [count, cols].
  void gather(const int64_t* ids, int64_t count, float* to) const;

 private:
  int64_t blocks() const { return (rows_ + kBlockNeurons - 1) / kBlockNeurons; }
  const float* block(int64_t number) const { return weights_.data() + number * cols_ * kBlockNeurons; }

  int64_t rows_, cols_;
  LineVector<float> weights_;  // [blocks, cols, 16]
};

}  // namespace tilepress
