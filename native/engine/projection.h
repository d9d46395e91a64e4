// Linear layers of a step, packed or plain, and embeddings, on rows of float32.
#pragma once

#include <initializer_list>
#include <optional>
#include <span>

#include "dispatch/linear_layer.h"
#include "engine/plain_matrix.h"

namespace tilepress {

// One of the two. Points into memory that its owner keeps.
struct Projection {
  std::optional<LinearLayer> packed;
  const PlainMatrix* plain;
  const float* bias;  // may be null

  int64_t rows() const { return packed ? packed->weights.shape.rows : plain->rows(); }
  int64_t cols() const { return packed ? packed->weights.shape.cols : plain->cols(); }
};

// Throws std::invalid_argument if the layer has other sizes.
void require_layer(const Projection& layer, int64_t rows, int64_t cols);

// A layer, and where its results go: [batch, rows].
struct ProjectionOutput {
  const Projection& layer;
  float* y;
};

// Products of the same x [batch, cols]. Of a row that is not finite, layers that round to integers give NaN, and clear
// it in x; no other row is changed by it.
void multiply(std::initializer_list<ProjectionOutput> outputs, float* x, int64_t batch, int threads);

// Some neurons of a product, on the calling thread: y [batch, neurons.count], from one row to the next `stride`. Throws
// std::invalid_argument if a row is not finite and the layer rounds to integers.
void multiply_neurons(const Projection& layer, const Neurons& neurons, const float* x, int64_t batch, float* y,
                      int64_t stride);

// Rows `ids` of the layer's weights, each from 0 to below its rows, to [count, cols].
void gather(const Projection& embedding, std::span<const int64_t> ids, float* to, int threads);

}  // namespace tilepress
