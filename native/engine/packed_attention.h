// Attention of a step's queries to the tokens of their sequences, in packed stores.
#pragma once

#include <span>
#include <vector>

#include "dispatch/kv_sequence.h"
#include "dispatch/memory.h"
#include "engine/attention.h"

namespace tilepress {

// Of a step's rows: [rows, heads * head_dim].
struct HeadRows {
  const float *queries, *keys, *values;
};

// Memory that is used again from layer to layer.
class PackedAttention {
 public:
  // Appends the tokens to each sequence's store of this layer; out [rows, heads * head_dim]. A sequence with a key,
  // value or query that is not finite is spoiled: it gets no more tokens, and its outputs are NaN. `stored`: one for
  // each of `sequences`.
  void attend(int64_t layer, const AttentionHeads& heads, std::span<const Sequence> sequences,
              std::span<KvSequence* const> stored, const HeadRows& rows, float* out, int threads);

 private:
  LineVector<float> floats_;  // of one sequence, [heads, count, head_dim] each: queries, keys, values, outputs
};

}  // namespace tilepress
