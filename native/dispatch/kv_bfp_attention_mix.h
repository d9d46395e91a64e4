// Softmax weights × values of a wave, and their reduction to outputs.
#pragma once

#include "dispatch/kv_bfp_attention_plan.h"
#include "dispatch/registry.h"

namespace tilepress {

class BfpAttentionMix {
 public:
  BfpAttentionMix(BfpKvStore& store, const BfpAttentionPlan& plan) : store_(store), plan_(plan) {}

  // A job's softmax weights, and those of immutable pages × values.
  void mix(int64_t job);

  // Appends the wave's values of a head, one of its ranges of channels; after each, its token's weights × the mutable
  // pages, and its outputs.
  void append_values(int64_t part);

 private:
  void softmax(const WaveToken& first, const SegmentSpan& span, int64_t tokens, const SoftmaxWeights& to);
  void mix_panel(const AttentionJob& job, const SoftmaxWeights& weights);
  void mix_pages(const WaveToken& first, const SegmentSpan& span, int64_t tokens, const SoftmaxWeights& weights,
                 const KvChannels& which, float* partials);
  float max_of(const WaveToken& token, int64_t row) const;
  const float* sink(const WaveToken& token, int64_t row) const;
  void reduce(const WaveToken& token, const KvChannels& which) const;

  KernelOf<ops::mix_f32_u8_bfp> const mix_ = choose<ops::mix_f32_u8_bfp>();
  KernelOf<ops::mix_f32_bf16_bfp> const mix_tiles_ = choose<ops::mix_f32_bf16_bfp>();
  KernelOf<ops::softmax_u8_f32> const softmax_ = choose<ops::softmax_u8_f32>();
  BfpKvStore& store_;
  const BfpAttentionPlan& plan_;
};

}  // namespace tilepress
