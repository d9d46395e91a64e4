// Operations of elementwise/.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tilepress/kernel.h"

namespace tilepress {

// x / (1 + e^-x), in place.
TILEPRESS_OPERATION(silu_f32, void(float* values, int64_t count));

// cap * tanh(x / cap), in place; cap > 0. The same bits as kernels/attention_reference.py.
TILEPRESS_OPERATION(softcap_f32, void(float* values, int64_t count, float cap));

// Reads every byte once, one after the other or in several places at a time, and returns a checksum, so that the reads
// cannot be left out.
TILEPRESS_OPERATION(read_u8, uint64_t(const uint8_t* data, size_t size, bool in_parts));

// Multiplies int8 tiles of ones [16, 64] · [64, 16] in registers, four products a round, into an accumulator each, and
// returns an element of the first: 64 a round. Fewer than 2^25 rounds, or it overflows.
TILEPRESS_OPERATION(multiply_tiles, int32_t(int64_t rounds));

// values = e^(value - largest), of which it returns the sum; `largest` is not below any.
TILEPRESS_OPERATION(softmax_f32, float(float* values, int64_t count, float largest));

// The largest of so many scores, which may be none.
TILEPRESS_OPERATION(max_f32, float(const float* scores, int64_t count));

// ---- Sampling. Logits are taken in blocks, the last of which may be shorter.

inline constexpr int64_t kLogitBlock = 256;

// A token's score is (logit - largest) * scale, and its weight e^score. Those count whose score is from `least` to
// `most`. `least` is at least kLeastScore; at lower scores a weight is no normal number.
inline constexpr float kLeastScore = -87.0f;
struct Weighing {
  float largest, scale;
  float least, most;
};

// The largest logit of each block; NaN where there is one.
TILEPRESS_OPERATION(peak_f32, void(const float* logits, int64_t count, float* peaks));

// The sum of the weights that count, of each block.
TILEPRESS_OPERATION(weigh_f32,
                    void(const float* logits, int64_t count, const Weighing&, const float* peaks, float* sums));

// The scores of tokens that count, in order. Returns how many there are. Room: kLogitBlock more than there are logits.
TILEPRESS_OPERATION(select_f32,
                    int64_t(const float* logits, int64_t count, const Weighing&, const float* peaks, float* scores));

// e^value, as weigh_f32 computes it.
TILEPRESS_OPERATION(exp_f32, void(const float* values, int64_t blocks, float* powers));

// The sum of the weights of scores that are `least` or more: never less for a lower `least`, if no weight is negative.
TILEPRESS_OPERATION(sum_f32, double(const float* scores, const float* weights, int64_t blocks, float least));

// Keeps scores from `least` to `most` and their weights, in order. Returns how many there are.
TILEPRESS_OPERATION(narrow_f32, int64_t(float* scores, float* weights, int64_t blocks, float least, float most));

}  // namespace tilepress
