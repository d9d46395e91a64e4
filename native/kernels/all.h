// Every kernel there is, by the instruction set it was written for.
#pragma once

#include "tilepress/kernels.h"

namespace tilepress {

namespace portable {
void quantize_row(const Format&, const float*, int64_t, GroupScales, void*);
void dequantize_row(const Format&, const void*, const uint8_t*, int64_t, GroupScales, float*);
void pack_block(const BlockShape&, const void*, const uint8_t*, uint8_t*, uint8_t*, uint8_t*);
void unpack_block(const BlockShape&, const uint8_t*, const uint8_t*, void*, uint8_t*, uint8_t*);
uint64_t read_bytes(const uint8_t*, size_t);
}  // namespace portable

}  // namespace tilepress
