// Compiled for: portable avx2 avx512
// One row of activations to int8 as formats/reference.py does it (int8:row), straight to its place in a row panel.
#include <limits>

#include "quantize/scales.h"
#include "simd/simd.h"
#include "tilepress/quantize.h"

namespace tilepress {
namespace {

// The bits of the largest magnitude; what is not finite is largest. Those of bf16 and fp16 are ordered alike, and a
// vector holds twice as many.
template <FloatType type>
inline uint32_t largest_of(const Int8Input& in) {
  Uint32s largest = {};
  int64_t at = 0;
  if constexpr (type != FloatType::f32) {
    constexpr int kHalves = 2 * kLanes;
    Vector<uint16_t> largest_halves = {};
    for (; at + kHalves <= in.count; at += kHalves) {
      largest_halves = max(largest_halves, load<Vector<uint16_t>>(in.x + 2 * at) & 0x7fff);
    }
    alignas(kSimdBytes) uint16_t halves[kHalves];
    store(largest_halves, halves);
    for (int i = 0; i < kHalves; i += kLanes) {
      largest = max(largest, std::bit_cast<Uint32s>(load_floats<type>(halves + i)));
    }
  }
  for (; at < in.count; at += kLanes)
    largest = max(largest, magnitude_bits(load_floats<type>(in.x, at, in.count - at)));
  return reduce_max(largest);
}

constexpr float kMostInt8 = 127;

// x / scale, rounded as a division is, by products: a division takes six times as long, and two threads of a core share
// one divider. x times 1 / scale, in two floats, is less than one unit in the last place from the quotient; corrected
// by its remainder it is the nearest (Markstein's theorem).
class ByProducts {
 public:
  // Whether no remainder underflows where it matters: quotients below 1/2 are rounded to 0.
  static bool serves(float scale) { return kHasFma && scale > 0x1p-64f && scale < 0x1p64f; }

  explicit ByProducts(float scale)
      : minus_scale_(splat<Floats>(-scale)),
        inverse_(splat<Floats>(1.0f / scale)),
        rest_(fma(inverse_, minus_scale_, splat<Floats>(1.0f)) * inverse_) {}

  [[gnu::always_inline]] Floats operator()(Floats x) const {
    const Floats near = fma(x, inverse_, x * rest_);
    return fma(fma(near, minus_scale_, x), inverse_, near);
  }

 private:
  Floats minus_scale_, inverse_, rest_;
};

// The same for any scale. A scale that was rounded far down gives more than int8 holds.
class ByDivision {
 public:
  explicit ByDivision(float scale) : scale_(splat<Floats>(scale)) {}

  [[gnu::always_inline]] Floats operator()(Floats x) const {
    return min(max(x / scale_, splat<Floats>(-128.0f)), splat<Floats>(kMostInt8));
  }

 private:
  Floats scale_;
};

// Arguments by value: stores of bytes may alias what a reference refers to.
template <FloatType type, class Quotients>
inline void quantize_by(Quotients quotients, Int8Input in, Int8Output out) {
  constexpr int kStep = 16;
  const auto values_at = [&](int64_t first, int64_t count) __attribute__((always_inline)) {
    return nearest_int(quotients(load_floats<type>(in.x, first, count)));
  };
  Int32s sums = {};
  int32_t* sum = out.sums;
  int64_t at = 0, left = in.segment;
  // After `count` more values, up to `next`.
  const auto end_segment = [&](int64_t count, int64_t next) __attribute__((always_inline)) {
    left -= count;
    if (left && next < in.count) return;
    *sum++ = reduce_sum(sums);
    sums = Int32s{};
    left = in.segment;
  };
  const bool halves = in.segment == kPiece / 2;
  for (; (halves || in.segment % kPiece == 0) && at + kPiece <= in.count; at += kPiece) {
    constexpr int kVectors = kPiece / kLanes;
    Int32s values[kVectors], half_sums[2] = {};
#pragma GCC unroll 16
    for (int i = 0; i < kVectors; ++i) {
      values[i] = values_at(at + i * kLanes, kLanes);
      half_sums[2 * i / kVectors] += values[i];
    }
    store_int8x64(values, out.values + at / kPiece * out.piece_stride);
    if (halves) {
      store<2>(reduce_pair(half_sums[0], half_sums[1], add<Int32s>), sum);
      sum += 2;
      continue;
    }
    sums += half_sums[0] + half_sums[1];
    end_segment(kPiece, at + kPiece);
  }
  for (; at < out.padded; at += kPiece) {
    int8_t* piece = out.values + at / kPiece * out.piece_stride;
#pragma GCC unroll 1
    for (int step = 0; step < kPiece; step += kStep) {
      Int32s values[kBlockVectors];
#pragma GCC unroll 4
      for (int part = 0; part < kBlockVectors; ++part) {
        const int64_t first = at + step + part * kLanes;
        values[part] = values_at(first, in.count - first);
        sums += values[part];
      }
      store_int8x16(values, piece + step);
      if (at + step < in.count) end_segment(kStep, at + step + kStep);
    }
  }
}

template <FloatType type>
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

bool quantize_i8_fp(const Int8Input& in, const Int8Output& out) {
  return with_float_type(in.type, [&]<FloatType type>() { return quantize_as<type>(in, out); });
}

TILEPRESS_KERNEL(quantize_i8_fp);

}  // namespace
}  // namespace tilepress
