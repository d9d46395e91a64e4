// Functions of Floats.
//   exp(x)                            e^x within two units in the last place; where that is no normal number, the
//                                     nearest that is; NaN stays
//   softcap(x, cap)                   cap * tanh(x / cap), with tanh |x| = (1 - e^-2|x|) / (1 + e^-2|x|); NaN stays
//   exp_and_sum(x, count, less, sum)  x[i] = e^(x[i] - less). Returns their sum: `sum` adds up the lanes' sums, then
//                                     come the last numbers, which fill no vector
#pragma once

#include "simd/simd.h"

namespace tilepress {
namespace {

// x = n ln 2 + r, a polynomial for e^r, and n added to the exponent.
TILEPRESS_INLINE Floats exp(Floats x) {
  constexpr float kLeast = -87.3f, kMost = 88.3f, kPerLn2 = 1.44269504f;
  constexpr float kLn2High = 0.693359375f, kLn2Low = -2.12194440e-4f;  // n times the first is exact
  constexpr float kRound = 0x1.8p23f;                                  // adding it leaves the nearest integer
  x = x < kLeast ? splat<Floats>(kLeast) : x;
  x = x > kMost ? splat<Floats>(kMost) : x;
  const Floats rounded = x * kPerLn2 + kRound, n = rounded - kRound;
  const Floats r = (x - n * kLn2High) - n * kLn2Low;
  Floats y = r * 1.98756915e-4f + 1.39819995e-3f;
  y = y * r + 8.33345191e-3f;
  y = y * r + 4.16657959e-2f;
  y = y * r + 1.66666655e-1f;
  y = y * r + 5.00000012e-1f;
  y = y * (r * r) + r + 1.0f;
  const Uint32s exponent = (std::bit_cast<Uint32s>(rounded) - std::bit_cast<uint32_t>(kRound) + 127) << 23;
  return y * std::bit_cast<Floats>(exponent);
}

TILEPRESS_INLINE Floats softcap(Floats x, float cap) {
  const Uint32s bits = std::bit_cast<Uint32s>(x), sign = bits & 0x80000000u;
  const Floats power = exp(max(splat<Floats>(-40.0f), std::bit_cast<Floats>(bits ^ sign) / cap * -2.0f));
  const Floats size = (1.0f - power) / (power + 1.0f) * cap;
  return std::bit_cast<Floats>(std::bit_cast<Uint32s>(size) | sign);
}

template <class Sum>
inline float exp_and_sum(float* x, int64_t count, float less, const Sum& sum_of) {
  Floats sums = {};
  int64_t at = 0;
  for (; at + kLanes <= count; at += kLanes) {
    const Floats powers = exp(load<Floats>(x + at) - less);
    store(powers, x + at);
    sums += powers;
  }
  float sum = sum_of(sums);
  for (; at < count; ++at) sum += x[at] = exp(splat<Floats>(x[at] - less))[0];
  return sum;
}

}  // namespace
}  // namespace tilepress
