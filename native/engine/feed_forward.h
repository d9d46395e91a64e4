// Feed-forward networks of a block: one for all rows, or experts.
#pragma once

#include "engine/experts.h"

namespace tilepress {

// Memory that is used again from layer to layer.
class FeedForwardStep {
 public:
  // out [rows, hidden] from x [rows, hidden], of which rows that are not finite may be cleared; they give no finite
  // ones.
  void run(const FeedForward& layer, float* x, int64_t rows, float* out, int threads);

 private:
  void run_network(const FeedForward& layer, float* x, int64_t rows, float* out, int threads);

  LineVector<float> gate_, up_, gated_;
  ExpertStep experts_;
};

}  // namespace tilepress
