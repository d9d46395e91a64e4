#include "dispatch/decoder.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <vector>

#include "dispatch/checks.h"
#include "dispatch/parallel.h"
#include "dispatch/registry.h"
#include "tilepress/attention.h"
#include "tilepress/elementwise.h"

namespace tilepress {
namespace {

std::vector<float> floats_of(FloatType type, const uint8_t* values, int64_t count) {
  std::vector<float> floats(size(count));
  load_row({values, type, nullptr}, 0, count, floats.data());
  return floats;
}

// Numbers of the model's type.
class Values {
 public:
  Values(FloatType type, int64_t count) : type_(type), count_(count), bytes_(size(count * bytes_of(type))) {}

  uint8_t* data() { return bytes_.data(); }
  std::vector<float> floats() const { return floats_of(type_, bytes_.data(), count_); }
  Values& operator=(const std::vector<float>& floats) {
    store_values(type_, floats.data(), count_, bytes_.data());
    return *this;
  }

 private:
  FloatType type_;
  int64_t count_;
  std::vector<uint8_t> bytes_;
};

// Rounds to the model's type.
void round_to(FloatType type, std::vector<float>& floats) {
  if (type == FloatType::f32) return;
  Values rounded(type, static_cast<int64_t>(floats.size()));
  rounded = floats;
  floats = rounded.floats();
}

// The same for all layers.
struct Token {
  std::vector<float> cosines, sines;
  int threads;
};

struct Product {
  const LinearLayer& layer;
  Values& y;
};

void multiply(std::initializer_list<Product> products, Values& values, FloatType type, int threads) {
  std::vector<LayerProduct> places;
  for (const auto& [layer, y] : products) places.push_back({layer, y.data()});
  tilepress::multiply(places, {values.data(), type, 1}, threads);
}

void normalise(const DecoderLayer& layer, const std::vector<float>& hidden, const uint8_t* weights, Values& out) {
  double squares = 0;
  for (float value : hidden) squares += static_cast<double>(value) * value;
  const auto mean = static_cast<float>(squares / static_cast<double>(hidden.size()));
  const float factor = 1.0f / std::sqrt(mean + layer.epsilon);
  std::vector<float> normal(hidden);
  for (float& value : normal) value *= factor;
  round_to(layer.type, normal);
  const std::vector<float> by = floats_of(layer.type, weights, layer.hidden());
  for (size_t i = 0; i < normal.size(); ++i) normal[i] *= by[i];
  out = normal;
}

// Rotary embedding: the first half of each head with the second.
void rotate(int64_t head_dim, const std::vector<float>& cosines, const std::vector<float>& sines,
            std::vector<float>& heads) {
  const size_t half = size(head_dim / 2);
  for (float* head = heads.data(); head < heads.data() + heads.size(); head += head_dim) {
    for (size_t i = 0; i < half; ++i) {
      const float first = head[i], second = head[i + half];
      head[i] = first * cosines[i] - second * sines[i];
      head[i + half] = second * cosines[i + half] + first * sines[i + half];
    }
  }
}

// Tokens per segment of the context: enough segments for all threads, and few to reduce. It depends on the number of
// tokens alone, since it decides how sums are rounded.
int64_t segment_tokens(int64_t count) {
  constexpr int64_t kLeast = 128, kMostSegments = 32;
  return std::max(kLeast, (count + kMostSegments - 1) / kMostSegments);
}

// Output of one head from its partial outputs [segments, dim + 2], as attend_f32_f32_fp leaves them.
void reduce_segments(const float* partials, int64_t count, int64_t stride, int64_t dim, float* out) {
  float largest = partials[dim], total = 0;
  for (int64_t i = 1; i < count; ++i) largest = std::max(largest, partials[i * stride + dim]);
  std::fill(out, out + dim, 0.0f);
  for (int64_t i = 0; i < count; ++i, partials += stride) {
    const float factor = std::exp(partials[dim] - largest);
    total += partials[dim + 1] * factor;
    for (int64_t j = 0; j < dim; ++j) out[j] += partials[j] * factor;
  }
  for (int64_t j = 0; j < dim; ++j) out[j] /= total;
}

void attend_heads(const DecoderLayer& layer, const std::vector<float>& queries, const TokenCache& cache,
                  std::vector<float>& out, int threads) {
  const auto attend = choose<ops::attend_f32_f32_fp>();
  const int64_t dim = layer.head_dim, bytes = dim * bytes_of(layer.type), length = cache.length + 1;
  const int64_t shared = layer.heads / layer.kv_heads, most = segment_tokens(length);
  const int64_t segments = (length + most - 1) / most, stride = layer.heads * (dim + 2);
  std::vector<float> partials(size(segments * stride));
  parallel_for(layer.kv_heads * segments, threads, [&](int, int64_t item) {
    static thread_local std::vector<float> weights;
    const int64_t head = item / segments, segment = item % segments, first = segment * most;
    const int64_t at = (head * cache.room + first) * bytes, count = std::min(most, length - first);
    if (weights.size() < size(shared * count)) weights.resize(size(shared * count));
    attend({queries.data() + head * shared * dim, shared, cache.keys + at, cache.values + at, layer.type, count, dim},
           weights.data(), partials.data() + segment * stride + head * shared * (dim + 2));
  });
  for (int64_t head = 0; head < layer.heads; ++head) {
    reduce_segments(partials.data() + head * (dim + 2), segments, stride, dim, out.data() + head * dim);
  }
}

void append(const DecoderLayer& layer, const TokenCache& cache, const std::vector<float>& heads, uint8_t* to) {
  const int64_t bytes = bytes_of(layer.type), dim = layer.head_dim;
  for (int64_t head = 0; head < layer.kv_heads; ++head) {
    store_values(layer.type, heads.data() + head * dim, dim, to + (head * cache.room + cache.length) * dim * bytes);
  }
}

void attention(const DecoderLayer& layer, Values& x, const Token& token, const TokenCache& cache, Values& out) {
  const int64_t dim = layer.head_dim;
  const int threads = token.threads;
  Values q(layer.type, layer.heads * dim), k(layer.type, layer.kv_heads * dim), v(layer.type, layer.kv_heads * dim);
  multiply({{layer.q, q}, {layer.k, k}, {layer.v, v}}, x, layer.type, threads);
  std::vector<float> queries = q.floats(), keys = k.floats(), mixed(queries.size());
  rotate(dim, token.cosines, token.sines, queries);
  rotate(dim, token.cosines, token.sines, keys);
  round_to(layer.type, queries);
  if (cache.store) {
    round_to(layer.type, keys);
    const std::vector<float> values = v.floats();
    cache.store->attend(
        {keys.data(), values.data(), nullptr, 1, queries.data(), layer.heads, layer.scaling, mixed.data()}, threads);
  } else {
    append(layer, cache, keys, cache.keys);
    append(layer, cache, v.floats(), cache.values);
    for (float& query : queries) query *= layer.scaling;
    attend_heads(layer, queries, cache, mixed, threads);
  }
  Values attended(layer.type, layer.heads * dim);
  attended = mixed;
  multiply({{layer.o, out}}, attended, layer.type, threads);
}

void feed_forward(const DecoderLayer& layer, Values& x, Values& out, int threads) {
  Values gate(layer.type, layer.inner()), up(layer.type, layer.inner());
  multiply({{layer.gate, gate}, {layer.up, up}}, x, layer.type, threads);
  std::vector<float> gates = gate.floats();
  const std::vector<float> ups = up.floats();
  choose<ops::silu_f32>()(gates.data(), layer.inner());
  round_to(layer.type, gates);
  for (size_t i = 0; i < gates.size(); ++i) gates[i] *= ups[i];
  gate = gates;
  multiply({{layer.down, out}}, gate, layer.type, threads);
}

void decode_layer(const DecoderLayer& layer, const Token& token, const TokenCache& cache, std::vector<float>& state) {
  Values x(layer.type, layer.hidden()), y(layer.type, layer.hidden());
  const auto add = [&] {
    const std::vector<float> more = y.floats();
    for (size_t i = 0; i < state.size(); ++i) state[i] += more[i];
    round_to(layer.type, state);
  };
  normalise(layer, state, layer.input_norm, x);
  attention(layer, x, token, cache, y);
  add();
  normalise(layer, state, layer.post_norm, x);
  feed_forward(layer, x, y, token.threads);
  add();
}

}  // namespace

void decode_token(const std::vector<const DecoderLayer*>& layers, const TokenInputs& inputs,
                  const std::vector<TokenCache>& caches, uint8_t* out, int threads) {
  const DecoderLayer& first = *layers.front();
  const Token token = {floats_of(first.type, inputs.cosines, first.head_dim),
                       floats_of(first.type, inputs.sines, first.head_dim), threads};
  std::vector<float> state = floats_of(first.type, inputs.hidden, first.hidden());
  with_standby_workers(threads, [&] {
    for (size_t i = 0; i < layers.size(); ++i) decode_layer(*layers[i], token, caches[i], state);
  });
  store_values(first.type, state.data(), first.hidden(), out);
}

void decode_token_packed(const std::vector<const DecoderLayer*>& layers, const TokenInputs& inputs,
                         const std::vector<KvStore*>& stores, int64_t length, uint8_t* out, int threads) {
  const std::vector<KvStore::Lock> locks = lock_all(stores);
  std::vector<TokenCache> caches;
  for (KvStore* store : stores) {
    if (store->length(0) != length) {
      throw std::runtime_error("the cache holds " + std::to_string(store->length(0)) + " tokens, not " +
                               std::to_string(length) +
                               ": another thread uses it; give each thread a cache of its own");
    }
    caches.push_back({nullptr, nullptr, 0, 0, store});
  }
  try {
    decode_token(layers, inputs, caches, out, threads);
  } catch (...) {
    for (KvStore* store : stores) store->crop({length});
    throw;
  }
}

}  // namespace tilepress
