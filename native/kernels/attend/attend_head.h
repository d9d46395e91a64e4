// One head's attention for one token, in float32. In a nameless namespace for the reason that pack_block.h gives.
#pragma once

#include <limits>

#include "kernels/exponential.h"
#include "tilepress/convert.h"

namespace tilepress {
namespace {

struct Bf16 {
  uint16_t bits;
};
struct Fp16 {
  uint16_t bits;
};

[[gnu::always_inline]] inline Floats lanes_at(const float* from) { return load<Floats>(from); }
[[gnu::always_inline]] inline Floats lanes_at(const Bf16* from) {
  return std::bit_cast<Floats>(widen(load<Halves>(from)) << 16);
}
[[gnu::always_inline]] inline Floats lanes_at(const Fp16* from) { return fp16_lanes_to_floats(load<Halves>(from)); }

inline float value_at(const float* from) { return *from; }
inline float value_at(const Bf16* from) { return bf16_to_float(from->bits); }
inline float value_at(const Fp16* from) { return fp16_to_float(from->bits); }

[[gnu::always_inline]] inline float sum_of(Floats lanes) {
  float sum = 0;
  for (int i = 0; i < kLanes; i += 2) sum += lanes[i] + lanes[i + 1];
  return sum;
}

template <class Number>
[[gnu::always_inline]] inline float dot(const float* x, const Number* y, int64_t count) {
  constexpr int kChains = 4;
  Floats sums[kChains] = {};
  int64_t at = 0;
  for (; at + kChains * kLanes <= count; at += kChains * kLanes) {
#pragma GCC unroll 4
    for (int i = 0; i < kChains; ++i) sums[i] += load<Floats>(x + at + i * kLanes) * lanes_at(y + at + i * kLanes);
  }
  for (; at + kLanes <= count; at += kLanes) sums[0] += load<Floats>(x + at) * lanes_at(y + at);
  float sum = sum_of((sums[0] + sums[1]) + (sums[2] + sums[3]));
  for (; at < count; ++at) sum += x[at] * value_at(y + at);
  return sum;
}

// exp(weights - largest), and their sum.
inline float exponentials(float* weights, int64_t count, float largest) {
  Floats sums = {};
  int64_t at = 0;
  for (; at + kLanes <= count; at += kLanes) {
    const Floats powers = exponential(load<Floats>(weights + at) - largest);
    store(powers, weights + at);
    sums += powers;
  }
  float sum = sum_of(sums);
  for (; at < count; ++at) sum += weights[at] = exponential(Floats{} + (weights[at] - largest))[0];
  return sum;
}

// `vectors` vectors of the mean of values, weights of which sum up to `total`.
template <int vectors, class Number>
[[gnu::always_inline]] inline void mix(const float* weights, float total, const Number* values, int64_t count,
                                       int64_t head_dim, float* out) {
  Floats sums[vectors] = {};
  for (int64_t i = 0; i < count; ++i, values += head_dim) {
#pragma GCC unroll 8
    for (int v = 0; v < vectors; ++v) sums[v] += lanes_at(values + v * kLanes) * weights[i];
  }
  for (int v = 0; v < vectors; ++v) store(sums[v] / total, out + v * kLanes);
}

template <class Number>
void attend(const HeadTokens& head, float* weights, float* out) {
  constexpr int kMany = 8;
  const auto* keys = static_cast<const Number*>(head.keys);
  const auto* values = static_cast<const Number*>(head.values);
  const int64_t dim = head.head_dim, count = head.count;
  float largest = -std::numeric_limits<float>::infinity();
  for (int64_t i = 0; i < count; ++i) {
    weights[i] = dot(head.query, keys + i * dim, dim);
    largest = weights[i] > largest ? weights[i] : largest;
  }
  const float total = exponentials(weights, count, largest);
  int64_t at = 0;
  for (; at + kMany * kLanes <= dim; at += kMany * kLanes) {
    mix<kMany>(weights, total, values + at, count, dim, out + at);
  }
  for (; at + kLanes <= dim; at += kLanes) mix<1>(weights, total, values + at, count, dim, out + at);
  for (; at < dim; ++at) {
    float sum = 0;
    for (int64_t i = 0; i < count; ++i) sum += weights[i] * value_at(values + i * dim + at);
    out[at] = sum / total;
  }
}

inline void attend_any(const HeadTokens& head, float* weights, float* out) {
  switch (head.type) {
    case Real::f32:
      return attend<float>(head, weights, out);
    case Real::bf16:
      return attend<Bf16>(head, weights, out);
    case Real::f16:
      return attend<Fp16>(head, weights, out);
  }
}

}  // namespace
}  // namespace tilepress
