// Whole linear layers: activations made ready, blocks shared out among threads.
#pragma once

#include "dispatch/matrix.h"

namespace tilepress {

// Activations [batch, cols], row after row.
struct Activations {
  const uint8_t* data;
  Real type;
  int64_t batch;
};

// y [batch, rows] = x · Wᵀ + bias, x rounded row by row as the format int8:row does. `bias` may be null.
void linear_int8(const MatrixShape& shape, const Format& format, const Streams& streams, const Activations& x,
                 const float* bias, float* y, int threads);

}  // namespace tilepress
