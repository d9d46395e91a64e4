// A decoder model's step over a ragged batch: any mix of prompt chunks and single tokens of many sequences, from token
// ids to logits. What it computes is described by data; src/tilepress/engine/reference.py is the specification.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "engine/attention.h"
#include "engine/exchange.h"
#include "engine/feed_forward.h"
#include "engine/packed_attention.h"
#include "engine/projection.h"
#include "engine/rows.h"

namespace tilepress {

using FloatVector = std::vector<float>;

// Norms' weights are empty where there is no norm. Hidden states are float32.
struct DecoderBlock {
  std::vector<Projection> qkv;  // queries, keys and values; or one layer that gives all, in this order
  Projection o;                 // neither, in a rank without heads
  FeedForward feed_forward;
  FloatVector attn_norm, attn_post_norm, ffn_norm, ffn_post_norm;
  FloatVector q_norm, k_norm;  // of a head, or of all heads as one vector, as their sizes say
  FloatVector sinks;
  AttentionHeads heads;
  int64_t rotary;  // which of the model's; -1: none
  float residual_multiplier;

  bool attends() const { return heads.heads > 0; }
};

// A model, or what one rank has of it: of each layer some heads and some channels between its feed-forward layers, and
// some tokens' rows of embedding and output. Sums over all ranks are then those of the whole model's layers; biases of
// layers that are summed are one rank's.
struct DecoderModel {
  Projection embedding, output;
  FloatVector norm;
  std::vector<DecoderBlock> blocks;
  std::vector<RotaryEmbedding> rotaries;
  int64_t longest;                                               // tokens of a sequence
  float epsilon, embedding_multiplier, logits_scaling, softcap;  // softcap: of logits; 0: none
  std::vector<int64_t> tokens;                                   // the first one of each rank, and how many there are
  Exchange* exchange = nullptr;                                  // with the other ranks, if there are any

  int64_t rank() const { return exchange ? exchange->rank() : 0; }
  int64_t hidden() const { return embedding.cols(); }
  int64_t vocabulary() const { return tokens.back(); }
  int64_t first_token() const { return tokens[size(rank())]; }
};

// New tokens of a sequence, of which `start` are in its pages, or in `packed` if the model has no pages.
struct StepChunk {
  std::vector<int64_t> tokens;
  int64_t start;
  std::vector<int64_t> pages;
  int64_t logits;  // of how many of the last tokens
  KvSequence* packed = nullptr;
};

// A model and its pages, or none where sequences are packed, and in a rank without heads. One step at a time: calls of
// several threads wait for each other.
class Stepper {
 public:
  // Throws std::invalid_argument where parts do not fit together. Pages have the shapes of the model's blocks; null:
  // sequences are packed.
  Stepper(DecoderModel model, std::unique_ptr<PagePool> pool);

  const DecoderModel& model() const { return model_; }
  // Throws std::invalid_argument if there are no pages.
  const PagePool& pool() const;

  // logits [tokens whose are wanted, vocabulary], which only rank 0 gives. Throws std::invalid_argument, with nothing
  // written, if a chunk does not fit the model, its pages, or another chunk; std::runtime_error if another rank fails,
  // which all do if one does.
  void run(const std::vector<StepChunk>& chunks, float* logits, int threads);
  void copy_page(int64_t source, int64_t target);
  void read_page(int64_t layer, int64_t page, float* to);

 private:
  // Where the rows of a step are: token, position, page and place in it of each.
  struct Rows {
    std::vector<int64_t> tokens, positions, pages, places, wanted;
    std::vector<Sequence> sequences;
    std::vector<KvSequence*> packed;

    int64_t count() const { return static_cast<int64_t>(tokens.size()); }
  };
  struct Buffers {
    LineVector<float> hidden, normed, joined, queries, keys, values, mixed, added, logits;
    std::vector<LineVector<float>> turns;  // of each rotary embedding, [rows, cosines and sines]
  };

  void check_page(int64_t page) const;
  void check(const StepChunk& chunk) const;
  void check_pages(const StepChunk& chunk) const;
  void check_packed(const StepChunk& chunk) const;
  Rows rows_of(const std::vector<StepChunk>& chunks) const;
  void run(const Rows& rows, float* logits, int threads);
  void embed(const Rows& rows, int threads);
  void gather_own(const Rows& rows, float* x, int threads);
  void run_block(size_t layer, const Rows& rows, int threads);
  void project(const DecoderBlock& block, const Rows& rows, int threads);
  void place(size_t layer, const Rows& rows, int64_t row);
  void attend(size_t layer, const Rows& rows, float* out, int threads);
  void attend_and_project(size_t layer, const Rows& rows, int threads);
  void add_up(float* x, int64_t count, int threads);
  void share_spoiled(const Rows& rows);
  void norm_next(int64_t row, const FloatVector* norm);
  void add(int64_t row, const FloatVector& post_norm, float multiplier, const FloatVector* next_norm);
  void give_logits(const Rows& rows, float* logits, int threads);
  void multiply_output(float* normed, int64_t count, float* logits, int threads);

  DecoderModel model_;
  std::unique_ptr<PagePool> pool_;
  PagedAttention attention_;
  PackedAttention packed_attention_;
  FeedForwardStep feed_forward_;
  Buffers buffers_;
  std::mutex running_;
};

}  // namespace tilepress
