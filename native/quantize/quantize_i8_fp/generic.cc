// Compiled for: portable avx2 avx512
// A row of activations as int8, what formats/reference.py makes of int8:row, straight to its places.
#include <limits>

#include "quantize/scales.h"
#include "simd/lanes.h"

namespace tilepress {
namespace {

// The largest magnitude, as bits: those of floats of one sign are in order, and what is not finite is largest. So are
// the bits of halves, twice as many of which are looked at at once.
template <FloatType type>
inline uint32_t largest_of(const Int8Input& in) {
  using Half [[gnu::vector_size(kSimdBytes)]] = uint16_t;
  constexpr int kHalves = kSimdBytes / 2;
  Words largest = {};
  int64_t at = 0;
  if constexpr (type != FloatType::f32) {
    Half largest_half = {};
    for (; at + kHalves <= in.count; at += kHalves) {
      largest_half = larger(largest_half, load<Half>(in.x + 2 * at) & 0x7fff);
    }
    alignas(kSimdBytes) uint16_t halves[kHalves];
    std::memcpy(halves, &largest_half, sizeof halves);
    for (int i = 0; i < kHalves; i += kLanes) {
      largest = larger(largest, std::bit_cast<Words>(activations_at<type>(halves, i, kLanes)));
    }
  }
  for (; at < in.count; at += kLanes) {
    const Words magnitude = std::bit_cast<Words>(activations_at<type>(in.x, at, in.count - at)) & 0x7fffffff;
    largest = larger(largest, magnitude);
  }
  return most_of(largest)[0];
}

constexpr float kMostInt8 = 127;

// x / scale, rounded as a division is: two threads of a core share one divider, which takes six times as long. The
// product with 1 / scale, in two floats, is less than one unit of its last place from the quotient; correcting it by
// what it leaves of x makes it the nearest (Markstein's theorem).
class ByProducts {
 public:
  // Whether what is left of x cannot be lost, wherever that matters: quotients below 1/2 are rounded to 0.
  static bool serves(float scale) { return kFused && scale > 0x1p-64f && scale < 0x1p64f; }

  explicit ByProducts(float scale)
      : minus_scale_(Floats{} - scale),
        inverse_(Floats{} + 1.0f / scale),
        rest_(fused(inverse_, minus_scale_, Floats{} + 1.0f) * inverse_) {}

  [[gnu::always_inline]] Floats operator()(Floats x) const {
    const Floats near = fused(x, inverse_, x * rest_);
    return fused(fused(near, minus_scale_, x), inverse_, near);
  }

 private:
  Floats minus_scale_, inverse_, rest_;
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
template <FloatType type, class Quotients>
inline void quantize_by(Quotients quotients, Int8Input in, Int8Output out) {
  constexpr int kStep = kParts * kLanes;
  const auto values_at = [&](int64_t first, int64_t count) __attribute__((always_inline)) {
    return nearest(quotients(activations_at<type>(in.x, first, count)));
  };
  SignedWords sums = {};
  int32_t* sum = out.sums;
  int64_t at = 0, left = in.segment;
  // After `count` more values, up to `next`.
  const auto end_segment = [&](int64_t count, int64_t next) __attribute__((always_inline)) {
    left -= count;
    if (left && next < in.count) return;
    *sum++ = sum_of(sums)[0];
    sums = SignedWords{};
    left = in.segment;
  };
  const bool halves = in.segment == kPiece / 2;
  for (; (halves || in.segment % kPiece == 0) && at + kPiece <= in.count; at += kPiece) {
    constexpr int kVectors = kPiece / kLanes;
    SignedWords values[kVectors], half_sums[2] = {};
#pragma GCC unroll 16
    for (int i = 0; i < kVectors; ++i) {
      values[i] = values_at(at + i * kLanes, kLanes);
      half_sums[2 * i / kVectors] += values[i];
    }
    store_piece(values, out.values + at / kPiece * out.piece_stride);
    if (halves) {
      store_two(joined_in_turn(half_sums[0], half_sums[1], added), sum);
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
      SignedWords values[kParts];
#pragma GCC unroll 4
      for (int part = 0; part < kParts; ++part) {
        const int64_t first = at + step + part * kLanes;
        values[part] = values_at(first, in.count - first);
        sums += values[part];
      }
      store_bytes(values, piece + step);
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
