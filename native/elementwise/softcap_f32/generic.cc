// Compiled for: portable avx2 avx512
// cap * tanh(x / cap), with tanh |x| = (1 - e^-2|x|) / (1 + e^-2|x|).
#include "simd/math.h"
#include "tilepress/elementwise.h"

namespace tilepress {
namespace {

void softcap_f32(float* values, int64_t count, float cap) {
  const auto capped = [&](Floats x) {
    const Uint32s bits = std::bit_cast<Uint32s>(x), sign = bits & 0x80000000u;
    const Floats power = exp(max(std::bit_cast<Floats>(bits ^ sign) / cap * -2.0f, splat<Floats>(-40.0f)));
    const Floats size = (1.0f - power) / (power + 1.0f) * cap;
    return std::bit_cast<Floats>(std::bit_cast<Uint32s>(size) | sign);
  };
  int64_t at = 0;
  for (; at + kLanes <= count; at += kLanes) store(capped(load<Floats>(values + at)), values + at);
  for (; at < count; ++at) values[at] = capped(splat<Floats>(values[at]))[0];
}

TILEPRESS_KERNEL(softcap_f32);

}  // namespace
}  // namespace tilepress
