// Linear layers of a model: packed weights, bias, and how activations are rounded.
#pragma once

#include <span>

#include "dispatch/linear.h"

namespace tilepress {

struct LinearLayer {
  PackedWeights weights;
  const float* bias;  // may be null
  bool integers;      // activations are rounded by `rounding`; otherwise taken as they are
  IntegerFormat rounding;
  bool bf16 = false;  // float activations may be rounded to bf16
};

// A layer, and where its results go: [batch, rows] of the activations' type; `stride` as in Outputs.
struct LayerProduct {
  const LinearLayer& layer;
  uint8_t* y;
  int64_t stride = 0;
};

// Products of the same activations, which are prepared once where the layers can share them. Throws
// std::invalid_argument if one that is to be rounded to integers is not finite.
void multiply(std::span<const LayerProduct> products, const Activations& x, int threads);

}  // namespace tilepress
