#include "engine/rows.h"

#include <cmath>

#include "dispatch/registry.h"
#include "tilepress/elementwise.h"

namespace tilepress {
namespace {

// Several sums, so that additions need not wait for each other.
float mean_square(std::span<const float> x) {
  constexpr size_t kSums = 8;
  double sums[kSums] = {};
  size_t at = 0;
  for (; at + kSums <= x.size(); at += kSums) {
    for (size_t i = 0; i < kSums; ++i) sums[i] += static_cast<double>(x[at + i]) * x[at + i];
  }
  for (; at < x.size(); ++at) sums[at % kSums] += static_cast<double>(x[at]) * x[at];
  double all = 0;
  for (double sum : sums) all += sum;
  return static_cast<float>(all / static_cast<double>(x.size()));
}

// Gate and up, numbers apart that the compiler knows.
template <int64_t stride>
struct Parts {
  explicit Parts(const GateUp& given) : gates(given.gate), ups(given.up), count(given.count) {}
  float gate(int64_t i) const { return gates[i * stride]; }
  float up(int64_t i) const { return ups[i * stride]; }

  const float *gates, *ups;
  int64_t count;
};

template <class Parts>
void silu(const Parts& parts, float* out) {
  for (int64_t i = 0; i < parts.count; ++i) out[i] = parts.gate(i);
  choose<ops::silu_f32>()(out, parts.count);
  for (int64_t i = 0; i < parts.count; ++i) out[i] *= parts.up(i);
}

void tanh(float* values, int64_t count) { choose<ops::softcap_f32>()(values, count, 1.0f); }

template <class Parts>
void gelu_tanh(const Parts& parts, float* out) {
  constexpr float kRoot = 0.7978845608f, kCube = 0.044715f;  // √(2 / π)
  for (int64_t i = 0; i < parts.count; ++i) {
    const float gate = parts.gate(i);
    out[i] = kRoot * (gate + kCube * gate * gate * gate);
  }
  tanh(out, parts.count);
  for (int64_t i = 0; i < parts.count; ++i) out[i] = 0.5f * parts.gate(i) * (1.0f + out[i]) * parts.up(i);
}

// sigmoid(x) = (1 + tanh(x / 2)) / 2. Comparisons keep NaN.
template <class Parts>
void clamped_swiglu(const Gating& gating, const Parts& parts, float* out) {
  const float limit = gating.limit;
  const auto below = [&](float x) { return x > limit ? limit : x; };
  for (int64_t i = 0; i < parts.count; ++i) out[i] = below(parts.gate(i)) * gating.alpha * 0.5f;
  tanh(out, parts.count);
  for (int64_t i = 0; i < parts.count; ++i) {
    const float up = -below(-below(parts.up(i)));
    out[i] = (up + 1.0f) * below(parts.gate(i)) * 0.5f * (1.0f + out[i]);
  }
}

template <class Parts>
void gated(const Gating& gating, const Parts& parts, float* out) {
  if (gating.activation == Activation::silu) return silu(parts, out);
  if (gating.activation == Activation::gelu_tanh) return gelu_tanh(parts, out);
  clamped_swiglu(gating, parts, out);
}

}  // namespace

void rms_norm(const float* x, std::span<const float> weights, float epsilon, float* out) {
  const float scale = 1.0f / std::sqrt(mean_square({x, weights.size()}) + epsilon);
  for (size_t i = 0; i < weights.size(); ++i) out[i] = x[i] * scale * weights[i];
}

void turns_of(const RotaryEmbedding& rotary, int64_t position, float* turns) {
  float *cosines = turns, *sines = turns + rotary.pairs();
  for (size_t i = 0; i < rotary.frequencies.size(); ++i) {
    const float angle = static_cast<float>(position) * rotary.frequencies[i];
    cosines[i] = std::cos(angle) * rotary.factor;
    sines[i] = std::sin(angle) * rotary.factor;
  }
}

void rotate(const RotaryEmbedding& rotary, const float* turns, float* x, int64_t heads, int64_t head_dim) {
  const int64_t pairs = rotary.pairs(), step = rotary.interleaved ? 2 : 1, apart = rotary.interleaved ? 1 : pairs;
  const float *cosines = turns, *sines = turns + pairs;
  for (float* head = x; head < x + heads * head_dim; head += head_dim) {
    for (int64_t i = 0; i < pairs; ++i) {
      const float a = head[i * step], b = head[i * step + apart];
      head[i * step] = a * cosines[i] - b * sines[i];
      head[i * step + apart] = b * cosines[i] + a * sines[i];
    }
  }
}

void gated(const Gating& gating, const GateUp& parts, float* out) {
  parts.interleaved ? gated(gating, Parts<2>(parts), out) : gated(gating, Parts<1>(parts), out);
}

}  // namespace tilepress
