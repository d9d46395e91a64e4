// Compiled for: portable avx2 avx512
// Attention of several queries to the tokens of some pages, in float32. Every sum goes from one token or channel to the
// next, or lane by lane at places that a token's number gives: so other queries do not change it.
#include <algorithm>
#include <limits>

#include "simd/math.h"
#include "tilepress/attention.h"

namespace tilepress {
namespace {

// Queries per call of score() and mix(), and vectors of channels per call of mix(): as many as there are registers for.
constexpr int kQueries = 6, kTokenVectors = 2;
#if defined(__aarch64__) || defined(__AVX512F__)
constexpr int kChannelVectors = 4;
#else
constexpr int kChannelVectors = 2;
#endif

constexpr int fewer(int queries) { return queries == kQueries ? 4 : queries - 1; }

struct Group : PagedTokens {
  SeenTokens any;  // what one query or another sees
  int64_t stride;  // of weights

  explicit Group(const PagedTokens& all) : PagedTokens(all), any{0, 0}, stride(all.pages * all.page_tokens) {
    for (const SeenTokens* one = seen; one < seen + count; ++one) {
      if (one->first >= one->end) continue;
      any = {any.end ? std::min(any.first, one->first) : one->first, std::max(any.end, one->end)};
    }
  }
  int64_t first_page() const { return any.first / page_tokens; }
  int64_t end_page() const { return (any.end + page_tokens - 1) / page_tokens; }
};

// Scores of `vectors` vectors of tokens, whose keys begin at `keys`.
template <int queries, int vectors, FloatType type>
[[gnu::always_inline]] inline void score(const Group& group, int64_t query, const Stored<type>* keys, float* scores) {
  const float* x = group.queries + query * group.head_dim;
  Floats sums[queries][vectors] = {};
  for (int64_t channel = 0; channel < group.head_dim; ++channel, keys += group.page_tokens) {
    Floats key[vectors];
#pragma GCC unroll 2
    for (int v = 0; v < vectors; ++v) key[v] = load_floats<type>(keys + v * kLanes);
#pragma GCC unroll 8
    for (int i = 0; i < queries; ++i) {
#pragma GCC unroll 2
      for (int v = 0; v < vectors; ++v) sums[i][v] = fma(key[v], x[i * group.head_dim + channel], sums[i][v]);
    }
  }
  for (int i = 0; i < queries; ++i) {
    for (int v = 0; v < vectors; ++v) store(sums[i][v], scores + i * group.stride + v * kLanes);
  }
}

template <int queries, FloatType type>
void score_pages(const Group& group, int64_t query, float* weights) {
  for (int64_t page = group.first_page(); page < group.end_page(); ++page) {
    const auto* keys = static_cast<const Stored<type>*>(group.keys[page]);
    float* scores = weights + query * group.stride + page * group.page_tokens;
    int64_t token = 0;
    for (; token + kTokenVectors * kLanes <= group.page_tokens; token += kTokenVectors * kLanes) {
      score<queries, kTokenVectors, type>(group, query, keys + token, scores + token);
    }
    for (; token < group.page_tokens; token += kLanes) {
      score<queries, 1, type>(group, query, keys + token, scores + token);
    }
  }
}

// Scores to weights, 0 for tokens that the query does not see. Sets the largest score and the weights' sum.
void softmax(const Group& group, int64_t query, float* weights, float* largest_and_sum) {
  static constexpr Indices kIota([](int lane) { return lane; });
  constexpr float kLowest = std::numeric_limits<float>::lowest();
  const int64_t begin = group.any.first / kLanes * kLanes;
  const Int32s first = splat<Int32s>(static_cast<int32_t>(group.seen[query].first));
  const Int32s end = splat<Int32s>(static_cast<int32_t>(group.seen[query].end));
  const auto seen = [&](int64_t at) {
    const Int32s token = load<Int32s>(kIota.lanes) + static_cast<int32_t>(at);
    return (token >= first) & (token < end);
  };
  Floats largest = splat<Floats>(kLowest), sums = {};
  for (int64_t at = begin; at < group.any.end; at += kLanes) {
    Floats scores = load<Floats>(weights + at);
    if (group.softcap > 0) scores = softcap(scores, group.softcap);
    scores = seen(at) ? scores : splat<Floats>(kLowest);
    store(scores, weights + at);
    largest = max(scores, largest);
  }
  const float most = reduce_max(largest);
  for (int64_t at = begin; at < group.any.end; at += kLanes) {
    const Floats powers = seen(at) ? exp(load<Floats>(weights + at) - most) : Floats{};
    store(powers, weights + at);
    sums += powers;
  }
  largest_and_sum[0] = most;
  largest_and_sum[1] = reduce_sum(sums);
}

// `vectors` vectors of each query's weighted sum of values, from channel `at` on; of the last one `channels` channels.
template <int queries, int vectors, FloatType type>
[[gnu::always_inline]] inline void mix(const Group& group, int64_t query, const float* weights, int64_t at,
                                       int64_t channels, float* out) {
  Floats sums[queries][vectors] = {};
  for (int64_t page = group.first_page(); page < group.end_page(); ++page) {
    const int64_t start = page * group.page_tokens, end = std::min(group.any.end, start + group.page_tokens);
    int64_t token = std::max(group.any.first, start);
    const auto* values = static_cast<const Stored<type>*>(group.values[page]) + (token - start) * group.head_dim + at;
    for (; token < end; ++token, values += group.head_dim) {
#pragma GCC unroll 4
      for (int v = 0; v < vectors; ++v) {
        const Floats value = to_floats<type>(load<Lanes<Stored<type>>>(values + v * kLanes, channels));
#pragma GCC unroll 8
        for (int i = 0; i < queries; ++i) sums[i][v] = fma(value, weights[i * group.stride + token], sums[i][v]);
      }
    }
  }
  for (int i = 0; i < queries; ++i) {
    for (int v = 0; v < vectors; ++v) {
      const size_t bytes = static_cast<size_t>(std::min<int64_t>(channels, kLanes)) * sizeof(float);
      std::memcpy(out + (query + i) * (group.head_dim + 2) + at + v * kLanes, &sums[i][v], bytes);
    }
  }
}

template <int queries, FloatType type>
void mix_pages(const Group& group, int64_t query, const float* weights, float* out) {
  weights += query * group.stride;
  int64_t at = 0;
  for (; at + kChannelVectors * kLanes <= group.head_dim; at += kChannelVectors * kLanes) {
    mix<queries, kChannelVectors, type>(group, query, weights, at, kLanes, out);
  }
  for (; at + kLanes <= group.head_dim; at += kLanes) mix<queries, 1, type>(group, query, weights, at, kLanes, out);
  if (at < group.head_dim) mix<queries, 1, type>(group, query, weights, at, group.head_dim - at, out);
}

// Queries from `query` on, as many at a time as there are registers for, then the rest.
template <int queries, FloatType type>
void attend_from(const Group& group, int64_t query, float* weights, float* out) {
  for (; query + queries <= group.count; query += queries) {
    score_pages<queries, type>(group, query, weights);
    for (int64_t i = query; i < query + queries; ++i) {
      softmax(group, i, weights + i * group.stride, out + i * (group.head_dim + 2) + group.head_dim);
    }
    mix_pages<queries, type>(group, query, weights, out);
  }
  if constexpr (queries > 1) {
    if (query < group.count) attend_from<fewer(queries), type>(group, query, weights, out);
  }
}

void attend_f32_f32_fp_pages(const PagedTokens& all, float* weights, float* out) {
  const Group group(all);
  with_float_type(all.type, [&]<FloatType type>() { attend_from<kQueries, type>(group, 0, weights, out); });
}

TILEPRESS_KERNEL(attend_f32_f32_fp_pages);

}  // namespace
}  // namespace tilepress
