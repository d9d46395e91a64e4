// Compiled for: portable avx2 avx512
// cap * tanh(x / cap).
#include "simd/math.h"
#include "tilepress/elementwise.h"

namespace tilepress {
namespace {

void softcap_f32(float* values, int64_t count, float cap) {
  int64_t at = 0;
  for (; at + kLanes <= count; at += kLanes) store(softcap(load<Floats>(values + at), cap), values + at);
  for (; at < count; ++at) values[at] = softcap(splat<Floats>(values[at]), cap)[0];
}

TILEPRESS_KERNEL(softcap_f32);

}  // namespace
}  // namespace tilepress
