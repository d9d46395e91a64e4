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
  FloatType type;
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

// A token's states [hidden], and cosines and sines [head_dim] of its position, halves rotated against each other.
struct TokenInputs {
  const uint8_t *hidden, *cosines, *sines;
};

// out [hidden] = what the layers, one after another, make of the token; its keys and values are added to the caches,
// one a layer. All layers are of one type and one size of hidden states and heads. Throws std::invalid_argument where
// integers are wanted and an activation is not finite; what the caches hold up to their lengths is never changed, but
// packed ones may have become a token longer.
void decode_token(const std::vector<const DecoderLayer*>& layers, const TokenInputs& token,
                  const std::vector<TokenCache>& caches, uint8_t* out, int threads);

// The same with packed caches of one sequence and `length` tokens each, locked for the whole token: all of them have it
// in the end or, where this throws, none. Throws std::runtime_error where one has another length.
void decode_token_packed(const std::vector<const DecoderLayer*>& layers, const TokenInputs& token,
                         const std::vector<GrowingKv*>& caches, int64_t length, uint8_t* out, int threads);

}  // namespace tilepress
