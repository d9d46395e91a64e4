// The decoder layers of a Llama-like model, for one token, in one call: norms, rotary embedding, attention over the
// cache and the gated feed-forward network, around seven packed linear layers each.
#pragma once

#include <vector>

#include "dispatch/kv_store.h"
#include "dispatch/linear_layer.h"

namespace tilepress {

// `type` is that of hidden states, norms' weights [hidden], cosines and sines, and cache.
struct DecoderLayer {
  FloatType type;
  int64_t heads, kv_heads, head_dim;
  float epsilon, scaling;
  const uint8_t *input_norm, *post_norm;
  LinearLayer q, k, v, o, gate, up, down;

  int64_t hidden() const { return q.weights.shape.cols; }
  int64_t inner() const { return gate.weights.shape.rows; }
};

// Keys and values of one layer [kv_heads, room, head_dim], with `length` tokens; length < room. Or a packed store of
// one sequence.
struct TokenCache {
  uint8_t *keys, *values;
  int64_t length, room;
  KvStore* store = nullptr;  // in place of the others
};

// A token's hidden states [hidden], and cosines and sines [head_dim] of its position.
struct TokenInputs {
  const uint8_t *hidden, *cosines, *sines;
};

// Runs all layers; out [hidden] are the last one's hidden states. Appends the token's keys and values to the caches,
// one per layer. All layers have one type, hidden size and head size. Throws std::invalid_argument if an activation
// that is to be rounded is not finite; tokens before this one stay as they were, but packed stores may have become one
// longer.
void decode_token(const std::vector<const DecoderLayer*>& layers, const TokenInputs& token,
                  const std::vector<TokenCache>& caches, uint8_t* out, int threads);

// The same with packed stores of one sequence and `length` tokens each, locked for the whole call. If it throws, no
// store has the token. Throws std::runtime_error if a store has another length.
void decode_token_packed(const std::vector<const DecoderLayer*>& layers, const TokenInputs& token,
                         const std::vector<KvStore*>& stores, int64_t length, uint8_t* out, int threads);

}  // namespace tilepress
