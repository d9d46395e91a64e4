// Every kernel there is, by the instruction set it was written for.
#pragma once

#include "tilepress/kernels.h"

namespace tilepress {

namespace portable {
QuantizeRow quantize_row;
DequantizeRow dequantize_row;
PackBlock pack_block;
UnpackBlock unpack_block;
LinearInteger linear_integer_span;
ReadBytes read_bytes;
}  // namespace portable

namespace neon_dotprod {
PackBlock pack_block;
UnpackBlock unpack_block;
LinearInteger linear_integer_span;
}  // namespace neon_dotprod

namespace avx2 {
QuantizeRow quantize_row;
DequantizeRow dequantize_row;
ReadBytes read_bytes;
}  // namespace avx2

namespace avx512 {
QuantizeRow quantize_row;
DequantizeRow dequantize_row;
PackBlock pack_block;
UnpackBlock unpack_block;
LinearInteger linear_integer_span;
ReadBytes read_bytes;
}  // namespace avx512

}  // namespace tilepress
