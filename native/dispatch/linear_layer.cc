#include "dispatch/linear_layer.h"

#include <algorithm>
#include <vector>

namespace tilepress {
namespace {

bool round_alike(const LinearLayer& a, const LinearLayer& b) {
  return a.integers == b.integers && a.bf16 == b.bf16 && a.rounding.group == b.rounding.group &&
         a.rounding.mantissa == b.rounding.mantissa;
}

Activations activations_of(const LinearLayer& layer, const Activations& x) {
  return {x.data, x.type, x.batch, layer.bf16 ? FloatType::bf16 : x.precision};
}

void multiply(const LayerProduct& product, const Activations& x, int threads) {
  const LinearLayer& layer = product.layer;
  const Outputs outputs = {product.y, x.type, layer.bias, product.stride};
  if (layer.integers) {
    linear_integer(layer.weights, x, layer.rounding, integer_variant(layer.weights, x.batch, layer.rounding), outputs,
                   threads);
  } else {
    linear_float(layer.weights, x, float_variant(layer.weights, x.batch, x.precision), outputs, threads);
  }
}

bool multiply_together(std::span<const LayerProduct> products, const Activations& x, int threads) {
  const LinearLayer& first = products.front().layer;
  const auto alike = [&](const LayerProduct& product) { return round_alike(product.layer, first); };
  if (!std::ranges::all_of(products, alike)) return false;
  std::vector<LinearProblem> problems;
  for (const auto& [layer, y, stride] : products) problems.push_back({layer.weights, {y, x.type, layer.bias, stride}});
  return first.integers ? grouped_linear_integer(problems, x, first.rounding, threads)
                        : grouped_linear_float(problems, x, threads);
}

}  // namespace

void multiply(std::span<const LayerProduct> products, const Activations& x, int threads) {
  if (multiply_together(products, activations_of(products.front().layer, x), threads)) return;
  for (const LayerProduct& product : products) multiply(product, activations_of(product.layer, x), threads);
}

}  // namespace tilepress
