// Compiled for: portable avx2 avx512
// One token's attention to the tokens of a head, in float32.
#include <limits>

#include "simd/exponential.h"
#include "tilepress/attention.h"
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

// Heads and tokens whose scores are summed up at once, and sums of products with values: as registers allow.
#if defined(__aarch64__) || defined(__AVX512F__)
constexpr int kHeads = 4, kTokens = 4, kSums = 24;
#else
constexpr int kHeads = 4, kTokens = 2, kSums = 12;
#endif

[[gnu::always_inline]] inline float sum_of(Floats lanes) {
  float sum = 0;
  for (int i = 0; i < kLanes; i += 2) sum += lanes[i] + lanes[i + 1];
  return sum;
}

template <int tokens>
[[gnu::always_inline]] inline void store_sums(const Floats (&lanes)[tokens], float* to) {
#if defined(__aarch64__)
  if constexpr (tokens == 4) {
    vst1q_f32(to, vpaddq_f32(vpaddq_f32(lanes[0], lanes[1]), vpaddq_f32(lanes[2], lanes[3])));
    return;
  }
#endif
  for (int i = 0; i < tokens; ++i) to[i] = sum_of(lanes[i]);
}

// Of `heads` heads with `tokens` tokens.
template <int heads, int tokens, class Number>
[[gnu::always_inline]] inline void score(const HeadTokens& all, const float* queries, int64_t token, float* weights) {
  const int64_t dim = all.head_dim;
  const Number* keys = static_cast<const Number*>(all.keys) + token * dim;
  Floats sums[heads][tokens] = {};
  int64_t at = 0;
  for (; at + kLanes <= dim; at += kLanes) {
    Floats key[tokens];
#pragma GCC unroll 4
    for (int i = 0; i < tokens; ++i) key[i] = lanes_at(keys + i * dim + at);
#pragma GCC unroll 4
    for (int head = 0; head < heads; ++head) {
      const Floats query = load<Floats>(queries + head * dim + at);
#pragma GCC unroll 4
      for (int i = 0; i < tokens; ++i) sums[head][i] += query * key[i];
    }
  }
#pragma GCC unroll 4
  for (int head = 0; head < heads; ++head) {
    float* to = weights + head * all.count + token;
    store_sums<tokens>(sums[head], to);
    for (int64_t rest = at; rest < dim; ++rest) {
      for (int i = 0; i < tokens; ++i) to[i] += queries[head * dim + rest] * value_at(keys + i * dim + rest);
    }
  }
}

inline float largest_of(const float* values, int64_t count) {
  float largest = std::numeric_limits<float>::lowest();
  Floats lanes = Floats{} + largest;
  int64_t at = 0;
  for (; at + kLanes <= count; at += kLanes) {
    const Floats here = load<Floats>(values + at);
    lanes = here > lanes ? here : lanes;
  }
  for (int i = 0; i < kLanes; ++i) largest = lanes[i] > largest ? lanes[i] : largest;
  for (; at < count; ++at) largest = values[at] > largest ? values[at] : largest;
  return largest;
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

// `vectors` vectors of each head's sum of values, from channel `at` on.
template <int heads, int vectors, class Number>
[[gnu::always_inline]] inline void mix(const HeadTokens& all, const float* weights, int64_t at, float* out) {
  const Number* values = static_cast<const Number*>(all.values) + at;
  Floats sums[heads][vectors] = {};
  for (int64_t i = 0; i < all.count; ++i, values += all.head_dim) {
    float weight[heads];
#pragma GCC unroll 4
    for (int head = 0; head < heads; ++head) weight[head] = weights[head * all.count + i];
#pragma GCC unroll 8
    for (int v = 0; v < vectors; ++v) {
      const Floats value = lanes_at(values + v * kLanes);
#pragma GCC unroll 4
      for (int head = 0; head < heads; ++head) sums[head][v] += value * weight[head];
    }
  }
  for (int head = 0; head < heads; ++head) {
    for (int v = 0; v < vectors; ++v) store(sums[head][v], out + head * (all.head_dim + 2) + at + v * kLanes);
  }
}

// For the largest power of two of vectors that there are registers for.
constexpr int vectors_for(int heads) {
  int vectors = 8;
  while (heads * vectors > kSums) vectors /= 2;
  return vectors;
}

template <int heads, class Number>
void attend(const HeadTokens& all, int64_t first, float* weights, float* out) {
  constexpr int kMany = vectors_for(heads);
  const int64_t dim = all.head_dim, count = all.count;
  const float* queries = all.queries + first * dim;
  weights += first * count;
  out += first * (dim + 2);
  int64_t token = 0;
  for (; token + kTokens <= count; token += kTokens) score<heads, kTokens, Number>(all, queries, token, weights);
  for (; token < count; ++token) score<heads, 1, Number>(all, queries, token, weights);
  for (int head = 0; head < heads; ++head) {
    const float largest = largest_of(weights + head * count, count);
    float* behind = out + head * (dim + 2) + dim;
    behind[0] = largest;
    behind[1] = exponentials(weights + head * count, count, largest);
  }
  int64_t at = 0;
  for (; at + kMany * kLanes <= dim; at += kMany * kLanes) mix<heads, kMany, Number>(all, weights, at, out);
  for (; at + kLanes <= dim; at += kLanes) mix<heads, 1, Number>(all, weights, at, out);
  for (; at < dim; ++at) {
    const auto* values = static_cast<const Number*>(all.values) + at;
    for (int head = 0; head < heads; ++head) {
      float sum = 0;
      for (int64_t i = 0; i < count; ++i) sum += weights[head * count + i] * value_at(values + i * dim);
      out[head * (dim + 2) + at] = sum;
    }
  }
}

// Heads from `first` on, as many at a time as there are registers for, then the rest.
template <int heads, class Number>
void attend_from(const HeadTokens& all, int64_t first, float* weights, float* out) {
  for (; first + heads <= all.heads; first += heads) attend<heads, Number>(all, first, weights, out);
  if constexpr (heads > 1) {
    if (first < all.heads) attend_from<heads - 1, Number>(all, first, weights, out);
  }
}

void attend_f32_f32_fp(const HeadTokens& all, float* weights, float* out) {
  switch (all.type) {
    case FloatType::f32:
      return attend_from<kHeads, float>(all, 0, weights, out);
    case FloatType::bf16:
      return attend_from<kHeads, Bf16>(all, 0, weights, out);
    case FloatType::f16:
      return attend_from<kHeads, Fp16>(all, 0, weights, out);
  }
}

TILEPRESS_KERNEL(attend_f32_f32_fp);

}  // namespace
}  // namespace tilepress
