// Compiled for: portable avx2 avx512
// One token's attention to the tokens of a head, in float32.
#include <limits>

#include "simd/math.h"
#include "tilepress/attention.h"
#include "tilepress/convert.h"

namespace tilepress {
namespace {

// One key or value as float32.
template <FloatType type>
[[gnu::always_inline]] inline float value_of(Stored<type> stored) {
  if constexpr (type == FloatType::f16) return fp16_to_float(stored);
  if constexpr (type == FloatType::bf16) return bf16_to_float(stored);
  if constexpr (type == FloatType::f32) return stored;
}

// Heads and tokens per call of score(), and accumulators per call of mix(): as many as registers allow.
#if defined(__aarch64__) || defined(__AVX512F__)
constexpr int kHeads = 4, kTokens = 4, kSums = 24;
#else
constexpr int kHeads = 4, kTokens = 2, kSums = 12;
#endif

// As reduce_sum adds them up.
template <int tokens>
[[gnu::always_inline]] inline void store_sums(const Floats (&lanes)[tokens], float* to) {
#if defined(__aarch64__)
  if constexpr (tokens == 4) {
    vst1q_f32(to, vpaddq_f32(vpaddq_f32(lanes[0], lanes[1]), vpaddq_f32(lanes[2], lanes[3])));
    return;
  }
#endif
  for (int i = 0; i < tokens; ++i) to[i] = reduce_sum(lanes[i]);
}

// Scores of `heads` heads and `tokens` tokens.
template <int heads, int tokens, FloatType type>
[[gnu::always_inline]] inline void score(const HeadTokens& all, const float* queries, int64_t token, float* weights) {
  const int64_t dim = all.head_dim;
  const Stored<type>* keys = static_cast<const Stored<type>*>(all.keys) + token * dim;
  Floats sums[heads][tokens] = {};
  int64_t at = 0;
  for (; at + kLanes <= dim; at += kLanes) {
    Floats key[tokens];
#pragma GCC unroll 4
    for (int i = 0; i < tokens; ++i) key[i] = load_floats<type>(keys + i * dim + at);
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
      for (int i = 0; i < tokens; ++i) to[i] += queries[head * dim + rest] * value_of<type>(keys[i * dim + rest]);
    }
  }
}

inline float largest_of(const float* values, int64_t count) {
  float largest = std::numeric_limits<float>::lowest();
  Floats lanes = splat<Floats>(largest);
  int64_t at = 0;
  for (; at + kLanes <= count; at += kLanes) lanes = max(load<Floats>(values + at), lanes);
  for (int i = 0; i < kLanes; ++i) largest = lanes[i] > largest ? lanes[i] : largest;
  for (; at < count; ++at) largest = values[at] > largest ? values[at] : largest;
  return largest;
}

// `vectors` vectors of each head's weighted sum of values, from channel `at` on.
template <int heads, int vectors, FloatType type>
[[gnu::always_inline]] inline void mix(const HeadTokens& all, const float* weights, int64_t at, float* out) {
  const Stored<type>* values = static_cast<const Stored<type>*>(all.values) + at;
  Floats sums[heads][vectors] = {};
  for (int64_t i = 0; i < all.count; ++i, values += all.head_dim) {
    float weight[heads];
#pragma GCC unroll 4
    for (int head = 0; head < heads; ++head) weight[head] = weights[head * all.count + i];
#pragma GCC unroll 8
    for (int v = 0; v < vectors; ++v) {
      const Floats value = load_floats<type>(values + v * kLanes);
#pragma GCC unroll 4
      for (int head = 0; head < heads; ++head) sums[head][v] += value * weight[head];
    }
  }
  for (int head = 0; head < heads; ++head) {
    for (int v = 0; v < vectors; ++v) store(sums[head][v], out + head * (all.head_dim + 2) + at + v * kLanes);
  }
}

// The largest power of two of vectors that there are registers for.
constexpr int vectors_for(int heads) {
  int vectors = 8;
  while (heads * vectors > kSums) vectors /= 2;
  return vectors;
}

template <int heads, FloatType type>
void attend(const HeadTokens& all, int64_t first, float* weights, float* out) {
  constexpr int kMany = vectors_for(heads);
  const int64_t dim = all.head_dim, count = all.count;
  const float* queries = all.queries + first * dim;
  weights += first * count;
  out += first * (dim + 2);
  int64_t token = 0;
  for (; token + kTokens <= count; token += kTokens) score<heads, kTokens, type>(all, queries, token, weights);
  for (; token < count; ++token) score<heads, 1, type>(all, queries, token, weights);
  for (int head = 0; head < heads; ++head) {
    const float largest = largest_of(weights + head * count, count);
    float* behind = out + head * (dim + 2) + dim;
    behind[0] = largest;
    behind[1] = exp_and_sum(weights + head * count, count, largest, [](Floats sums) { return reduce_sum(sums); });
  }
  int64_t at = 0;
  for (; at + kMany * kLanes <= dim; at += kMany * kLanes) mix<heads, kMany, type>(all, weights, at, out);
  for (; at + kLanes <= dim; at += kLanes) mix<heads, 1, type>(all, weights, at, out);
  for (; at < dim; ++at) {
    const auto* values = static_cast<const Stored<type>*>(all.values) + at;
    for (int head = 0; head < heads; ++head) {
      float sum = 0;
      for (int64_t i = 0; i < count; ++i) sum += weights[head * count + i] * value_of<type>(values[i * dim]);
      out[head * (dim + 2) + at] = sum;
    }
  }
}

// Heads from `first` on, as many at a time as there are registers for, then the rest.
template <int heads, FloatType type>
void attend_from(const HeadTokens& all, int64_t first, float* weights, float* out) {
  for (; first + heads <= all.heads; first += heads) attend<heads, type>(all, first, weights, out);
  if constexpr (heads > 1) {
    if (first < all.heads) attend_from<heads - 1, type>(all, first, weights, out);
  }
}

void attend_f32_f32_fp(const HeadTokens& all, float* weights, float* out) {
  with_float_type(all.type, [&]<FloatType type>() { attend_from<kHeads, type>(all, 0, weights, out); });
}

TILEPRESS_KERNEL(attend_f32_f32_fp);

}  // namespace
}  // namespace tilepress
