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

// A layer, and where its results go: [batch, rows].
struct ProjectionOutput {
  const Projection& layer;
  float* y;
};

// Products of the same x [batch, cols]. Of a row that is not finite, layers that round to integers give NaN, and clear
// it in x; no other row is changed by it.
void multiply(std::initializer_list<ProjectionOutput> outputs, float* x, int64_t batch, int threads);

// Rows `ids` of the layer's weights, each from 0 to below its rows, to [count, cols].
void gather(const Projection& embedding, std::span<const int64_t> ids, float* to, int threads);

}  // namespace tilepress
