// A row of activations as int8, what formats/reference.py makes of int8:row, straight to its places. In a nameless
// namespace for the reason that pack_block.h gives.
#pragma once

#include <limits>

#include "kernels/lanes.h"
#include "kernels/scales.h"

namespace tilepress {
namespace {

// The largest magnitude, as bits: those of floats of one sign are in order, and what is not finite is largest.
template <Real type>
inline uint32_t largest_of(const Int8Input& in) {
  Words largest = {};
  for (int64_t at = 0; at < in.count; at += kLanes) {
    const Words magnitude = std::bit_cast<Words>(activations_at<type>(in.x, at, in.count - at)) & 0x7fffffff;
    largest = larger(largest, magnitude);
  }
  return most_of(largest)[0];
}

constexpr float kMostInt8 = 127;

// x / scale, rounded as a division is: two threads of a core share one divider, which takes six times as long. The
// product with the nearest float to 1 / scale is less than two units of its last place from the quotient; correcting it
// by what it leaves of x once makes that less than one, and twice the nearest (Markstein's theorem).
class ByProducts {
 public:
  // Whether what is left of x cannot be lost, wherever that matters: quotients below 1/2 are rounded to 0.
  static bool serves(float scale) { return kFused && scale > 0x1p-64f && scale < 0x1p64f; }

  explicit ByProducts(float scale) : minus_scale_(Floats{} - scale), inverse_(Floats{} + 1.0f / scale) {}

  [[gnu::always_inline]] Floats operator()(Floats x) const {
    const Floats near = x * inverse_, nearer = corrected(near, x);
    return corrected(nearer, x);
  }

 private:
  [[gnu::always_inline]] Floats corrected(Floats quotient, Floats x) const {
    return fused(fused(quotient, minus_scale_, x), inverse_, quotient);
  }

  Floats minus_scale_, inverse_;
};

// The same for any scale. One that was rounded far down gives more than an int8 holds.
class ByDivision {
 public:
  explicit ByDivision(float scale) : scale_(Floats{} + scale) {}

  [[gnu::always_inline]] Floats operator()(Floats x) const {
    const Floats low = Floats{} - 128.0f, high = Floats{} + kMostInt8, quotient = x / scale_;
    const Floats raised = quotient < low ? low : quotient;
    return raised > high ? high : raised;
  }

 private:
  Floats scale_;
};

// By value: stores of bytes could be thought to change what is referred to.
template <Real type, class Quotients>
inline void quantize_by(Quotients quotients, Int8Input in, Int8Output out) {
  constexpr float kWhole = 0x1.8p23f;  // adding which leaves no bits for a fraction
  constexpr int kStep = kParts * kLanes;
  SignedWords sums = {};
  int32_t* sum = out.sums;
  for (int64_t at = 0, left = in.segment; at < out.padded; at += kPiece) {
    int8_t* piece = out.values + at / kPiece * out.piece_stride;
#pragma GCC unroll 1
    for (int step = 0; step < kPiece; step += kStep) {
      SignedWords values[kParts];
#pragma GCC unroll 4
      for (int part = 0; part < kParts; ++part) {
        const int64_t first = at + step + part * kLanes;
        const Floats places = quotients(activations_at<type>(in.x, first, in.count - first));
        values[part] = std::bit_cast<SignedWords>(places + kWhole) - std::bit_cast<int32_t>(kWhole);
        sums += values[part];
      }
      store_bytes(values, piece + step);
      left -= kStep;
      if (at + step >= in.count || (left && at + step + kStep < in.count)) continue;
      *sum++ = sum_of(sums)[0];
      sums = SignedWords{};
      left = in.segment;
    }
  }
}

template <Real type>
inline bool quantize_as(const Int8Input& in, const Int8Output& out) {
  constexpr uint32_t kInfinite = 0x7f800000;
  const uint32_t largest = largest_of<type>(in);
  if (largest >= kInfinite) return false;
  const float quotient = largest ? std::bit_cast<float>(largest) / kMostInt8 : 1.0f;
  const float scale = most(quotient, std::numeric_limits<float>::denorm_min());
  *out.scale = scale;
  ByProducts::serves(scale) ? quantize_by<type>(ByProducts(scale), in, out)
                            : quantize_by<type>(ByDivision(scale), in, out);
  return true;
}

inline bool quantize_int8(const Int8Input& in, const Int8Output& out) {
  return with_real_type(in.type, [&]<Real type>() { return quantize_as<type>(in, out); });
}

}  // namespace
}  // namespace tilepress
