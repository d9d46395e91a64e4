// Mixtures of experts: a router gives each row to some of many networks, whose outputs are added.
//
// Rows are sorted by expert, so that each expert multiplies all of its own at once; and all experts' products are tasks
// of one parallel loop, so that many small experts, and few large ones, keep all threads busy.
#pragma once

#include <optional>
#include <vector>

#include "engine/projection.h"
#include "engine/rows.h"

namespace tilepress {

struct Network {
  std::vector<Projection> gate_up;  // gate and up; or one layer that gives both
  Projection down;
};

// Each row goes to the `chosen` experts with the largest logits, weighted by their softmax; `renormalised`: these
// weights are divided by their sum.
struct Router {
  Projection layer;  // a logit for each expert
  int64_t chosen;
  bool renormalised;
};

struct FeedForward {
  std::vector<Network> networks;  // one; or experts, all of the same sizes
  std::optional<Router> router;   // of experts
  bool interleaved;               // gate and up, of one layer: one channel of each in turn
  Gating gating;

  int64_t hidden() const { return networks.front().down.rows(); }
  int64_t inner() const { return networks.front().down.cols(); }
};

// Throws std::invalid_argument where the parts do not fit together.
void check(const FeedForward& layer, int64_t hidden);

// Numbers and weights [router.chosen] of a row's experts, by falling logits; of equal ones the first. All weights are
// NaN if a logit is, or if the largest is not finite.
void choose_experts(const Router& router, std::span<const float> logits, int64_t* experts, float* weights);

// Memory that is used again from layer to layer.
class ExpertStep {
 public:
  // out [rows, hidden] from x [rows, hidden]. A row is the same bits whatever the others are, if those of its experts'
  // products are. Rows that are not finite give NaN; they may be cleared.
  void run(const FeedForward& layer, float* x, int64_t rows, float* out, int threads);

 private:
  // Neurons of an expert's layer.
  struct Task {
    int64_t expert;
    Neurons neurons;
  };

  void run_some(const FeedForward& layer, float* x, int64_t rows, float* out, int threads);
  void route(const FeedForward& layer, float* x, int64_t rows, int threads);
  void sort(int64_t experts);
  void gather(const FeedForward& layer, const float* x, int threads);
  template <class LayerOf>
  void multiply(const FeedForward& layer, const LayerOf& layer_of, const float* x, float* y, int threads);
  std::vector<Task> divide(int64_t outputs, int threads) const;
  void activate(const FeedForward& layer, int threads);
  void add(const FeedForward& layer, int64_t rows, float* out, int threads);
  void clear_if_bad(int64_t pair, float* values, int64_t count);

  int64_t pairs() const { return static_cast<int64_t>(chosen_.size()); }

  // A pair is a row and one of its experts: those of a row lie together. Its place is where it lies among all pairs
  // sorted by expert.
  std::vector<int64_t> chosen_, places_;      // of each pair: its expert, its place
  std::vector<float> weights_;                // of each pair
  std::vector<int64_t> begins_;               // places of each expert, and where the last one's end
  LineVector<float> logits_;                  // [rows, experts]
  LineVector<float> wide_, gate_up_, gated_;  // by place: [hidden], inputs and then outputs; [2 inner]; [inner]
};

}  // namespace tilepress
