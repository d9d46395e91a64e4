#include "engine/feed_forward.h"

namespace tilepress {

void FeedForwardStep::run(const FeedForward& layer, float* x, int64_t rows, float* out, int threads) {
  layer.router ? experts_.run(layer, x, rows, out, threads) : run_network(layer, x, rows, out, threads);
}

void FeedForwardStep::run_network(const FeedForward& layer, float* x, int64_t rows, float* out, int threads) {
  const Network& network = layer.networks.front();
  const int64_t inner = layer.inner();
  const bool together = network.gate_up.size() == 1;
  float* gate = with_room(gate_, rows * network.gate_up[0].rows());
  float* up = together ? nullptr : with_room(up_, rows * inner);
  float* between = with_room(gated_, rows * inner);
  if (together) {
    multiply({{network.gate_up[0], gate}}, x, rows, threads);
  } else {
    multiply({{network.gate_up[0], gate}, {network.gate_up[1], up}}, x, rows, threads);
  }
  for_rows(rows, threads, [&](int64_t row) {
    const GateUp parts = together ? joined_gate_up(gate + row * 2 * inner, layer.interleaved, inner)
                                  : GateUp{gate + row * inner, up + row * inner, false, inner};
    gated(layer.gating, parts, between + row * inner);
  });
  multiply({{network.down, out}}, between, rows, threads);
}

}  // namespace tilepress
