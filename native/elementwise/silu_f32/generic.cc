// Compiled for: portable avx2 avx512
// x / (1 + e^-x).
#include "simd/math.h"
#include "tilepress/elementwise.h"

namespace tilepress {
namespace {

void silu_f32(float* values, int64_t count) {
  const auto silu = [](Floats x) { return x / (exp(-x) + 1.0f); };
  int64_t at = 0;
  for (; at + kLanes <= count; at += kLanes) store(silu(load<Floats>(values + at)), values + at);
  for (; at < count; ++at) values[at] = silu(splat<Floats>(values[at]))[0];
}

TILEPRESS_KERNEL(silu_f32);

}  // namespace
}  // namespace tilepress
