// e^x of every lane, within two units in the last place: x = n ln 2 + r, a polynomial for e^r, and n added to the
// exponent. Where e^x is no normal number, the nearest that is; NaN stays.
#pragma once

#include "simd/lanes.h"

namespace tilepress {
namespace {

[[gnu::always_inline]] inline Floats exponential(Floats x) {
  constexpr float kLeast = -87.3f, kMost = 88.3f, kPerLn2 = 1.44269504f;
  constexpr float kLn2High = 0.693359375f, kLn2Low = -2.12194440e-4f;  // n times the first is exact
  constexpr float kRound = 0x1.8p23f;                                  // adding it leaves the nearest integer
  x = x < kLeast ? Floats{} + kLeast : x;
  x = x > kMost ? Floats{} + kMost : x;
  const Floats rounded = x * kPerLn2 + kRound, n = rounded - kRound;
  const Floats r = (x - n * kLn2High) - n * kLn2Low;
  Floats y = r * 1.98756915e-4f + 1.39819995e-3f;
  y = y * r + 8.33345191e-3f;
  y = y * r + 4.16657959e-2f;
  y = y * r + 1.66666655e-1f;
  y = y * r + 5.00000012e-1f;
  y = y * (r * r) + r + 1.0f;
  const Words exponent = (std::bit_cast<Words>(rounded) - std::bit_cast<uint32_t>(kRound) + 127) << 23;
  return y * std::bit_cast<Floats>(exponent);
}

}  // namespace
}  // namespace tilepress
