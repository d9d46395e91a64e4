// Whole linear layers: activations made ready, blocks of neurons and spans of inputs shared out among threads.
#pragma once

#include "dispatch/activations.h"

namespace tilepress {

// Where results go: y [batch, rows] in `type`; `bias` [rows] may be null.
struct Outputs {
  uint8_t* y;
  Real type;
  const float* bias;
};

// A packed matrix as linear layers take it.
struct PackedWeights {
  const MatrixShape& shape;
  const Format& format;
  const Streams& streams;
};

// y = x · Wᵀ + bias with x rounded to integers; W has an integer format in 8-bit tiles.
void linear_integer(const PackedWeights& weights, const Activations& x, const IntegerFormat& rounding,
                    const Outputs& outputs, int threads);

}  // namespace tilepress
