// What a decoder does with single rows, in float32.
#pragma once

#include <span>

#include "dispatch/checks.h"
#include "dispatch/parallel.h"

namespace tilepress {

// Calls work(row) for every row. Few rows are not worth other threads.
template <class Work>
void for_rows(int64_t rows, int threads, const Work& work) {
  constexpr int64_t kFew = 4;
  parallel_for(rows, rows > kFew ? threads : 1, [&](int, int64_t row) { work(row); });
}

// out = x / √(mean(x²) + epsilon) · weights; out may be x.
void rms_norm(const float* x, std::span<const float> weights, float epsilon, float* out);

// A rotary embedding: radians per token of each pair of channels, and what cosine and sine are multiplied by. Channels
// 2i and 2i + 1 are a pair if `interleaved`; otherwise i and i + pairs.
struct RotaryEmbedding {
  std::span<const float> frequencies;
  float factor;
  bool interleaved;

  int64_t pairs() const { return static_cast<int64_t>(frequencies.size()); }
};

// Cosines and sines [pairs] each of a position, one after the other.
void turns_of(const RotaryEmbedding& rotary, int64_t position, float* turns);
// The first channels of each head [heads, head_dim].
void rotate(const RotaryEmbedding& rotary, const float* turns, float* x, int64_t heads, int64_t head_dim);

enum class Activation { silu, gelu_tanh, clamped_swiglu };
struct Gating {
  Activation activation;
  float alpha, limit;  // of clamped_swiglu
};

// Gate and up of `count` channels: each on its own, or `interleaved`, one channel of each in turn.
struct GateUp {
  const float *gate, *up;
  bool interleaved;
  int64_t count;
};

// Of one layer that gives both, [2 * count]: all gates first, or `interleaved`.
inline GateUp joined_gate_up(const float* both, bool interleaved, int64_t count) {
  return {both, both + (interleaved ? 1 : count), interleaved, count};
}

// out [count] = activation(gate) · up.
void gated(const Gating& gating, const GateUp& parts, float* out);

}  // namespace tilepress
