#include "engine/experts.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>

namespace tilepress {
namespace {

constexpr int64_t kMostFloats = int64_t{1} << 26;  // between the experts' layers; more rows are computed in parts
constexpr int64_t kTasksPerThread = 4;
constexpr int64_t kDecoding = 16;  // rows that take as long to multiply as weights to be read and decoded

void check_network(const Network& network, int64_t hidden, int64_t inner) {
  require(network.gate_up.size() == 1 || network.gate_up.size() == 2, "gate and up have two matrices, or one");
  const int64_t together = network.gate_up.size() == 1 ? 2 : 1;
  for (const Projection& layer : network.gate_up) require_layer(layer, together * inner, hidden);
  require_layer(network.down, hidden, inner);
}

// The places of the largest logits, by falling logits; of equal ones the first.
void choose_largest(std::span<const float> logits, int64_t count, int64_t* largest) {
  const auto all = static_cast<int64_t>(logits.size());
  for (int64_t one = 0; one < all; ++one) {
    const auto is_larger_than = [&](int64_t at) { return logits[size(one)] > logits[size(largest[at])]; };
    if (one >= count && !is_larger_than(count - 1)) continue;
    int64_t at = std::min(one, count - 1);
    for (; at > 0 && is_larger_than(at - 1); --at) largest[at] = largest[at - 1];
    largest[at] = one;
  }
}

}  // namespace

void check(const FeedForward& layer, int64_t hidden) {
  const auto count = static_cast<int64_t>(layer.networks.size());
  require(count >= 1 && (layer.router || count == 1), "a block has one feed-forward network, or a router and experts");
  for (const Network& network : layer.networks) check_network(network, hidden, layer.inner());
  if (!layer.router) return;
  require_layer(layer.router->layer, count, hidden);
  require(layer.router->chosen >= 1 && layer.router->chosen <= count,
          "a row goes to 1 … " + std::to_string(count) + " experts, not " + std::to_string(layer.router->chosen));
  for (const Network& network : layer.networks) {
    require(network.gate_up.size() == 1, "an expert's gate and up have one matrix");
  }
}

void choose_experts(const Router& router, std::span<const float> logits, int64_t* experts, float* weights) {
  choose_largest(logits, router.chosen, experts);
  const float largest = logits[size(experts[0])];
  double total = 0;
  for (const float logit : logits) total += std::exp(logit - largest);
  for (int64_t i = 0; i < router.chosen; ++i) {
    weights[i] = static_cast<float>(std::exp(logits[size(experts[i])] - largest) / total);
  }
  if (!router.renormalised) return;
  const float sum = std::accumulate(weights, weights + router.chosen, 0.0f);
  for (int64_t i = 0; i < router.chosen; ++i) weights[i] /= sum;
}

// As many rows at a time as there is memory for.
void ExpertStep::run(const FeedForward& layer, float* x, int64_t rows, float* out, int threads) {
  const int64_t hidden = layer.hidden();
  const int64_t most = std::max<int64_t>(1, kMostFloats / (layer.router->chosen * (hidden + 3 * layer.inner())));
  for (int64_t row = 0; row < rows; row += most) {
    run_some(layer, x + row * hidden, std::min(most, rows - row), out + row * hidden, threads);
  }
}

void ExpertStep::run_some(const FeedForward& layer, float* x, int64_t rows, float* out, int threads) {
  route(layer, x, rows, threads);
  sort(static_cast<int64_t>(layer.networks.size()));
  with_room(wide_, pairs() * layer.hidden());
  with_room(gate_up_, pairs() * 2 * layer.inner());
  with_room(gated_, pairs() * layer.inner());
  const auto gate_up_of = [](const Network& network) -> const Projection& { return network.gate_up.front(); };
  const auto down_of = [](const Network& network) -> const Projection& { return network.down; };
  gather(layer, x, threads);
  multiply(layer, gate_up_of, wide_.data(), gate_up_.data(), threads);
  activate(layer, threads);
  multiply(layer, down_of, gated_.data(), wide_.data(), threads);
  add(layer, rows, out, threads);
}

// Experts and weights of each row.
void ExpertStep::route(const FeedForward& layer, float* x, int64_t rows, int threads) {
  const Router& router = *layer.router;
  const size_t experts = layer.networks.size();
  float* logits = with_room(logits_, rows * static_cast<int64_t>(experts));
  tilepress::multiply({{router.layer, logits}}, x, rows, threads);
  chosen_.resize(size(rows * router.chosen));
  weights_.resize(chosen_.size());
  for_rows(rows, threads, [&](int64_t row) {
    const int64_t first = row * router.chosen;
    choose_experts(router, {logits + size(row) * experts, experts}, &chosen_[size(first)], &weights_[size(first)]);
  });
}

// Pairs keep their order within an expert.
void ExpertStep::sort(int64_t experts) {
  begins_.assign(size(experts + 1), 0);
  for (int64_t expert : chosen_) ++begins_[size(expert + 1)];
  std::partial_sum(begins_.begin(), begins_.end(), begins_.begin());
  std::vector<int64_t> next = begins_;
  places_.resize(chosen_.size());
  for (size_t pair = 0; pair < chosen_.size(); ++pair) places_[pair] = next[size(chosen_[pair])]++;
}

// Rows to the places of their pairs; zeros instead of one that is not finite, whose weights become NaN.
void ExpertStep::gather(const FeedForward& layer, const float* x, int threads) {
  const int64_t hidden = layer.hidden(), chosen = layer.router->chosen;
  for_rows(pairs(), threads, [&](int64_t pair) {
    float* to = wide_.data() + places_[size(pair)] * hidden;
    std::copy_n(x + pair / chosen * hidden, hidden, to);
    clear_if_bad(pair, to, hidden);
  });
}

// Products of each expert's rows with one of its layers; from x [pairs, inputs] to y [pairs, outputs].
template <class LayerOf>
void ExpertStep::multiply(const FeedForward& layer, const LayerOf& layer_of, const float* x, float* y, int threads) {
  const Projection& first = layer_of(layer.networks.front());
  const int64_t inputs = first.cols(), outputs = first.rows();
  const std::vector<Task> tasks = divide(outputs, threads);
  parallel_for_throwing(static_cast<int64_t>(tasks.size()), threads, [&](int, int64_t number) {
    const auto& [expert, neurons] = tasks[size(number)];
    const int64_t begin = begins_[size(expert)], count = begins_[size(expert) + 1] - begin;
    multiply_neurons(layer_of(layer.networks[size(expert)]), neurons, x + begin * inputs, count,
                     y + begin * outputs + neurons.first, outputs);
  });
}

// Tasks of about the same size, several for each thread.
std::vector<ExpertStep::Task> ExpertStep::divide(int64_t outputs, int threads) const {
  const auto size_of = [&](size_t expert) {
    const int64_t rows = begins_[expert + 1] - begins_[expert];
    return rows ? rows + kDecoding : 0;
  };
  const size_t experts = begins_.size() - 1;
  int64_t all = 0;
  for (size_t expert = 0; expert < experts; ++expert) all += size_of(expert);
  const int64_t wanted = threads > 1 ? kTasksPerThread * threads : 1;
  const int64_t blocks = (outputs + kBlockNeurons - 1) / kBlockNeurons;
  std::vector<Task> tasks;
  for (size_t expert = 0; expert < experts; ++expert) {
    if (!size_of(expert)) continue;
    const int64_t parts = std::clamp<int64_t>(size_of(expert) * wanted / all, 1, blocks);
    const int64_t most = (blocks + parts - 1) / parts * kBlockNeurons;
    for (int64_t row = 0; row < outputs; row += most) {
      tasks.push_back({static_cast<int64_t>(expert), {row, std::min(most, outputs - row)}});
    }
  }
  return tasks;
}

void ExpertStep::activate(const FeedForward& layer, int threads) {
  const int64_t inner = layer.inner();
  for_rows(pairs(), threads, [&](int64_t pair) {
    const int64_t place = places_[size(pair)];
    float* to = gated_.data() + place * inner;
    gated(layer.gating, joined_gate_up(gate_up_.data() + place * 2 * inner, layer.interleaved, inner), to);
    clear_if_bad(pair, to, inner);
  });
}

// Sums of each row's outputs, in the order of its experts' weights.
void ExpertStep::add(const FeedForward& layer, int64_t rows, float* out, int threads) {
  const int64_t hidden = layer.hidden(), chosen = layer.router->chosen;
  for_rows(rows, threads, [&](int64_t row) {
    float* sums = out + row * hidden;
    std::fill_n(sums, hidden, 0.0f);
    for (int64_t pair = row * chosen; pair < (row + 1) * chosen; ++pair) {
      const float* y = wide_.data() + places_[size(pair)] * hidden;
      for (int64_t i = 0; i < hidden; ++i) sums[i] += weights_[size(pair)] * y[i];
    }
  });
}

// Layers may refuse what is not finite: zeros take its place, and the weight NaN carries it on.
void ExpertStep::clear_if_bad(int64_t pair, float* values, int64_t count) {
  if (!count_bad(values, count)) return;
  std::fill_n(values, count, 0.0f);
  weights_[size(pair)] = std::numeric_limits<float>::quiet_NaN();
}

}  // namespace tilepress
