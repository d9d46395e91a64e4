#include "dispatch/decoder.h"

#include <cmath>
#include <limits>
#include <vector>

#include "dispatch/parallel.h"

namespace tilepress {
namespace {

size_t size(int64_t count) { return static_cast<size_t>(count); }

std::vector<float> floats_of(Real type, const uint8_t* values, int64_t count) {
  std::vector<float> floats(size(count));
  load_row({values, type, nullptr}, 0, count, floats.data());
  return floats;
}

// Values of the model's own type.
class Values {
 public:
  Values(Real type, int64_t count) : type_(type), count_(count), bytes_(size(count * (type == Real::f32 ? 4 : 2))) {}

  uint8_t* data() { return bytes_.data(); }
  std::vector<float> floats() const { return floats_of(type_, bytes_.data(), count_); }
  Values& operator=(const std::vector<float>& floats) {
    store_values(type_, floats.data(), count_, bytes_.data());
    return *this;
  }

 private:
  Real type_;
  int64_t count_;
  std::vector<uint8_t> bytes_;
};

// As a model of that type would have them.
void round_to(Real type, std::vector<float>& floats) {
  if (type == Real::f32) return;
  Values rounded(type, static_cast<int64_t>(floats.size()));
  rounded = floats;
  floats = rounded.floats();
}

// What is the same for all layers.
struct Token {
  std::vector<float> cosines, sines;
  int threads;
};

void multiply(const LinearLayer& layer, Values& x, Real type, Values& y, int threads) {
  const Activations activations = {x.data(), type, 1};
  const Outputs outputs = {y.data(), type, layer.bias};
  if (layer.integers) {
    linear_integer(layer.weights, activations, layer.rounding, integer_way(layer.weights, 1, layer.rounding), outputs,
                   threads);
  } else {
    linear_float(layer.weights, activations, float_way(layer.weights, 1, type), outputs, threads);
  }
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

// Each head's first half against its second.
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

float to_float(const float* value) { return *value; }

struct Bf16 {
  uint16_t bits;
};
float to_float(const Bf16* value) { return bf16_to_float(value->bits); }

struct Fp16 {
  uint16_t bits;
};
float to_float(const Fp16* value) { return fp16_to_float(value->bits); }

// Sixteen sums side by side, so that the compiler can keep them in vectors without changing any order of its own.
template <class Number>
float dot(const float* x, const Number* y, int64_t count) {
  constexpr int kLanes = 16;
  float lanes[kLanes] = {}, sum = 0;
  int64_t at = 0;
  for (; at + kLanes <= count; at += kLanes) {
    for (int i = 0; i < kLanes; ++i) lanes[i] += x[at + i] * to_float(y + at + i);
  }
  for (; at < count; ++at) sum += x[at] * to_float(y + at);
  for (float lane : lanes) sum += lane;
  return sum;
}

// One head's softmax(query · keysᵀ) · values over `count` tokens; the query is scaled already.
template <class Number>
void attend(const float* query, const Number* keys, const Number* values, int64_t count, int64_t head_dim, float* out) {
  static thread_local std::vector<float> weights;
  weights.resize(size(count));
  float largest = -std::numeric_limits<float>::infinity(), total = 0;
  for (int64_t i = 0; i < count; ++i) {
    weights[size(i)] = dot(query, keys + i * head_dim, head_dim);
    largest = std::max(largest, weights[size(i)]);
  }
  std::fill(out, out + head_dim, 0.0f);
  for (int64_t i = 0; i < count; ++i) {
    const float weight = std::exp(weights[size(i)] - largest);
    const Number* value = values + i * head_dim;
    total += weight;
    for (int64_t d = 0; d < head_dim; ++d) out[d] += weight * to_float(value + d);
  }
  for (int64_t d = 0; d < head_dim; ++d) out[d] /= total;
}

template <class Number>
void attend_heads(const DecoderLayer& layer, const std::vector<float>& queries, const TokenCache& cache,
                  std::vector<float>& out, int threads) {
  const auto* keys = reinterpret_cast<const Number*>(cache.keys);
  const auto* values = reinterpret_cast<const Number*>(cache.values);
  parallel_for(layer.heads, threads, [&](int, int64_t head) {
    const int64_t at = head / (layer.heads / layer.kv_heads) * cache.room * layer.head_dim;
    attend(queries.data() + head * layer.head_dim, keys + at, values + at, cache.length + 1, layer.head_dim,
           out.data() + head * layer.head_dim);
  });
}

void append(const DecoderLayer& layer, const TokenCache& cache, const std::vector<float>& heads, uint8_t* to) {
  const int64_t bytes = layer.type == Real::f32 ? 4 : 2, dim = layer.head_dim;
  for (int64_t head = 0; head < layer.kv_heads; ++head) {
    store_values(layer.type, heads.data() + head * dim, dim, to + (head * cache.room + cache.length) * dim * bytes);
  }
}

void attention(const DecoderLayer& layer, Values& x, const Token& token, const TokenCache& cache, Values& out) {
  const int64_t dim = layer.head_dim;
  const int threads = token.threads;
  Values q(layer.type, layer.heads * dim), k(layer.type, layer.kv_heads * dim), v(layer.type, layer.kv_heads * dim);
  multiply(layer.q, x, layer.type, q, threads);
  multiply(layer.k, x, layer.type, k, threads);
  multiply(layer.v, x, layer.type, v, threads);
  std::vector<float> queries = q.floats(), keys = k.floats(), mixed(queries.size());
  rotate(dim, token.cosines, token.sines, queries);
  rotate(dim, token.cosines, token.sines, keys);
  round_to(layer.type, queries);
  append(layer, cache, keys, cache.keys);
  append(layer, cache, v.floats(), cache.values);
  for (float& query : queries) query *= layer.scaling;
  switch (layer.type) {
    case Real::f32:
      attend_heads<float>(layer, queries, cache, mixed, threads);
      break;
    case Real::bf16:
      attend_heads<Bf16>(layer, queries, cache, mixed, threads);
      break;
    case Real::f16:
      attend_heads<Fp16>(layer, queries, cache, mixed, threads);
      break;
  }
  Values attended(layer.type, layer.heads * dim);
  attended = mixed;
  multiply(layer.o, attended, layer.type, out, threads);
}

void feed_forward(const DecoderLayer& layer, Values& x, Values& out, int threads) {
  constexpr int64_t kPiece = 512;
  Values gate(layer.type, layer.inner()), up(layer.type, layer.inner());
  multiply(layer.gate, x, layer.type, gate, threads);
  multiply(layer.up, x, layer.type, up, threads);
  std::vector<float> gates = gate.floats();
  const std::vector<float> ups = up.floats();
  parallel_for((layer.inner() + kPiece - 1) / kPiece, threads, [&](int, int64_t piece) {
    const int64_t end = std::min((piece + 1) * kPiece, layer.inner());
    for (int64_t i = piece * kPiece; i < end; ++i) gates[size(i)] /= 1.0f + std::exp(-gates[size(i)]);
  });
  round_to(layer.type, gates);
  for (size_t i = 0; i < gates.size(); ++i) gates[i] *= ups[i];
  gate = gates;
  multiply(layer.down, gate, layer.type, out, threads);
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

void decode_token(const std::vector<const DecoderLayer*>& layers, const uint8_t* hidden, const uint8_t* cosines,
                  const uint8_t* sines, const std::vector<TokenCache>& caches, uint8_t* out, int threads) {
  const DecoderLayer& first = *layers.front();
  const Token token = {floats_of(first.type, cosines, first.head_dim), floats_of(first.type, sines, first.head_dim),
                       threads};
  std::vector<float> state = floats_of(first.type, hidden, first.hidden());
  with_crew(threads, [&] {
    for (size_t i = 0; i < layers.size(); ++i) decode_layer(*layers[i], token, caches[i], state);
  });
  store_values(first.type, state.data(), first.hidden(), out);
}

}  // namespace tilepress
