// The decoder layers of a Llama-like model for one token: norms, rotation, attention over the cache and the gated
// feed-forward network around seven packed linear layers each, in one call.
#pragma once

#include <vector>

#include "dispatch/kv_growing.h"
#include "dispatch/linear.h"

namespace tilepress {

struct LinearLayer {
  PackedWeights weights;
  const float* bias;  // may be null
  bool integers;      // activations are rounded as `rounding` says; otherwise taken as they are
  IntegerFormat rounding;
};

// Numbers of the model (`type`): hidden states, norms' weights [hidden], rotations, cache.
struct DecoderLayer {
  Real type;
  int64_t heads, kv_heads, head_dim;
  float epsilon, scaling;
  const uint8_t *input_norm, *post_norm;
  LinearLayer q, k, v, o, gate, up, down;

  int64_t hidden() const { return q.weights.shape.cols; }
  int64_t inner() const { return gate.weights.shape.rows; }
};

// keys and values [kv_heads, room, head_dim], the first `length` of each head's filled; there is room for one more. Or,
// where it is not null, a packed cache of one sequence.
struct TokenCache {
  uint8_t *keys, *values;
  int64_t length, room;
  GrowingKv* packed = nullptr;
};

// out [hidden] = what the layers, one after another, make of hidden [hidden]; the token's keys and values are added to
// the caches, one a layer. `cosines` and `sines` [head_dim] are of the token's position, halves rotated against each
// other. All layers are of one type and one size of hidden states and heads. Throws std::invalid_argument where
// integers are wanted and an activation is not finite; what the caches hold up to their lengths is never changed, but
// packed ones may have become a token longer.
void decode_token(const std::vector<const DecoderLayer*>& layers, const uint8_t* hidden, const uint8_t* cosines,
                  const uint8_t* sines, const std::vector<TokenCache>& caches, uint8_t* out, int threads);

}  // namespace tilepress
