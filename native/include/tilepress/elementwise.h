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

}  // namespace tilepress
