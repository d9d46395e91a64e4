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

// values = e^(value - largest), of which it returns the sum; `largest` is not below any.
TILEPRESS_OPERATION(softmax_f32, float(float* values, int64_t count, float largest));

// The largest of so many scores, which may be none.
TILEPRESS_OPERATION(max_f32, float(const float* scores, int64_t count));

}  // namespace tilepress
