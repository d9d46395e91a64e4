#include "engine/projection.h"

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <vector>

namespace tilepress {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// Rows that are not finite, set to zeros.
std::vector<int64_t> clear_bad_rows(float* x, int64_t batch, int64_t cols) {
  std::vector<int64_t> bad;
  for (int64_t row = 0; row < batch; ++row) {
    if (!count_bad(x + row * cols, cols)) continue;
    std::fill_n(x + row * cols, cols, 0.0f);
    bad.push_back(row);
  }
  return bad;
}

void multiply_packed(std::span<const ProjectionOutput> outputs, float* x, int64_t batch, int threads) {
  std::vector<LayerProduct> products;
  for (const auto& [layer, y] : outputs) products.push_back({*layer.packed, reinterpret_cast<uint8_t*>(y)});
  const Activations activations = {reinterpret_cast<const uint8_t*>(x), FloatType::f32, batch};
  try {
    multiply(products, activations, threads);
  } catch (const std::invalid_argument&) {
    const std::vector<int64_t> bad = clear_bad_rows(x, batch, outputs.front().layer.cols());
    if (bad.empty()) throw;
    multiply(products, activations, threads);
    for (const auto& [layer, y] : outputs) {
      for (int64_t row : bad) std::fill_n(y + row * layer.rows(), layer.rows(), kNaN);
    }
  }
}

}  // namespace

void require_layer(const Projection& layer, int64_t rows, int64_t cols) {
  require(layer.rows() == rows && layer.cols() == cols, "a matrix is " + std::to_string(layer.rows()) + " by " +
                                                            std::to_string(layer.cols()) + ", not " +
                                                            std::to_string(rows) + " by " + std::to_string(cols));
}

void multiply(std::initializer_list<ProjectionOutput> outputs, float* x, int64_t batch, int threads) {
  const bool packed = std::ranges::all_of(outputs, [](const ProjectionOutput& one) { return bool(one.layer.packed); });
  if (packed) return multiply_packed({outputs.begin(), outputs.size()}, x, batch, threads);
  for (const ProjectionOutput& one : outputs) {
    if (one.layer.packed) {
      multiply_packed({&one, 1}, x, batch, threads);
    } else {
      one.layer.plain->multiply(x, batch, one.layer.bias, one.y, threads);
    }
  }
}

void multiply_neurons(const Projection& layer, const Neurons& neurons, const float* x, int64_t batch, float* y,
                      int64_t stride) {
  if (layer.plain) return layer.plain->multiply(neurons, x, batch, layer.bias, y, stride, 1);
  const LinearLayer& whole = *layer.packed;
  const PackedWeights& weights = whole.weights;
  MatrixShape shape = weights.shape;
  shape.rows = neurons.count;
  const Streams streams = streams_of(weights.shape, weights.streams, neurons);
  const float* bias = whole.bias ? whole.bias + neurons.first : nullptr;
  const LinearLayer part = {
      {shape, weights.format, streams, weights.half_exponent}, bias, whole.integers, whole.rounding, whole.bf16};
  const LayerProduct product = {part, reinterpret_cast<uint8_t*>(y), stride};
  multiply({&product, 1}, {reinterpret_cast<const uint8_t*>(x), FloatType::f32, batch}, 1);
}

void gather(const Projection& embedding, std::span<const int64_t> ids, float* to, int threads) {
  const int64_t count = static_cast<int64_t>(ids.size());
  if (embedding.plain) return embedding.plain->gather(ids.data(), count, to);
  const PackedWeights& weights = embedding.packed->weights;
  gather_rows(weights.shape, weights.format, weights.streams, ids.data(), count, FloatType::f32,
              reinterpret_cast<uint8_t*>(to), threads);
}

}  // namespace tilepress
