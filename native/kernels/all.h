// Every kernel there is, by the instruction set it was written for.
#pragma once

#include "tilepress/kernels.h"
#include "tilepress/kv.h"
#include "tilepress/kv_sparse.h"
#include "tilepress/kv_thin.h"

namespace tilepress {

namespace portable {
QuantizeRow quantize_row;
DequantizeRow dequantize_row;
QuantizeInt8 quantize_int8_row;
QuantizeBfp quantize_bfp_row;
PackPlanes pack_planes;
UnpackPlanes unpack_planes;
PackBlock pack_block;
UnpackBlock unpack_block;
LinearInteger linear_integer_span;
LinearF32 linear_f32_span;
DecodeF32 decode_f32_span;
MultiplyF32 multiply_f32_weights;
DecodeBf16 decode_bf16_span;
MultiplyBf16 multiply_bf16_tiles;
LinearBf16Blocks linear_bf16_blocks;
MultiplyGroups multiply_bf16_groups;
LinearGroups linear_bf16_groups;
DecodeInt8 decode_int8_span;
MultiplyInt8 multiply_int8_tiles;
LinearInt8Blocks linear_int8_blocks;
AttendHead attend_head;
StoreBlock store_block;
SiluFloats silu_floats;
ReadBytes read_bytes;
KvScores kv_scores;
KvMix kv_mix;
KvScoresTiles kv_scores_tiles;
KvMixTiles kv_mix_tiles;
KvWeigh kv_weigh;
KvLargest kv_largest;
KvHalves kv_halves;
KvSetKey kv_set_key;
KvCutKey kv_cut_key;
KvSetValue kv_set_value;
KvCutValue kv_cut_value;
MultiplySparse multiply_sparse;
ExpandThin expand_thin;
SoftmaxWeights softmax_weights;
}  // namespace portable

namespace neon_dotprod {
RoundHalves round_half_row;
LinearF16 linear_f16_span;
PackPlanes pack_planes;
UnpackPlanes unpack_planes;
PackBlock pack_block;
UnpackBlock unpack_block;
LinearInteger linear_integer_span;
LinearF32 linear_f32_span;
DecodeF32 decode_f32_span;
MultiplyF32 multiply_f32_weights;
MultiplySparse multiply_sparse;
ExpandThin expand_thin;
KvScores kv_scores;
KvMix kv_mix;
KvWeigh kv_weigh;
}  // namespace neon_dotprod

namespace neon_i8mm {
LinearInteger linear_integer_span;
}  // namespace neon_i8mm

namespace avx2 {
QuantizeRow quantize_row;
DequantizeRow dequantize_row;
QuantizeInt8 quantize_int8_row;
QuantizeBfp quantize_bfp_row;
PackPlanes pack_planes;
UnpackPlanes unpack_planes;
LinearInteger linear_integer_span;
LinearF32 linear_f32_span;
DecodeF32 decode_f32_span;
MultiplyF32 multiply_f32_weights;
AttendHead attend_head;
StoreBlock store_block;
SiluFloats silu_floats;
ReadBytes read_bytes;
KvScores kv_scores;
KvMix kv_mix;
KvWeigh kv_weigh;
KvLargest kv_largest;
KvHalves kv_halves;
KvSetKey kv_set_key;
KvCutKey kv_cut_key;
KvSetValue kv_set_value;
KvCutValue kv_cut_value;
MultiplySparse multiply_sparse;
ExpandThin expand_thin;
SoftmaxWeights softmax_weights;
}  // namespace avx2

namespace avx512 {
QuantizeRow quantize_row;
DequantizeRow dequantize_row;
QuantizeInt8 quantize_int8_row;
QuantizeBfp quantize_bfp_row;
LinearF32 linear_f32_span;
DecodeF32 decode_f32_span;
MultiplyF32 multiply_f32_weights;
AttendHead attend_head;
StoreBlock store_block;
SiluFloats silu_floats;
ReadBytes read_bytes;
KvWeigh kv_weigh;
KvLargest kv_largest;
KvHalves kv_halves;
KvSetKey kv_set_key;
KvCutKey kv_cut_key;
KvSetValue kv_set_value;
KvCutValue kv_cut_value;
SoftmaxWeights softmax_weights;
}  // namespace avx512

namespace avx512_vnni {
LinearInteger linear_integer_span;
KvScores kv_scores;
KvMix kv_mix;
}  // namespace avx512_vnni

namespace avx512_vbmi2 {
PackPlanes pack_planes;
UnpackPlanes unpack_planes;
LinearF32 linear_f32_span;
DecodeF32 decode_f32_span;
PackBlock pack_block;
UnpackBlock unpack_block;
LinearInteger linear_integer_span;
DecodeInt8 decode_int8_span;
MultiplySparse multiply_sparse;
ExpandThin expand_thin;
}  // namespace avx512_vbmi2

namespace avx512_bf16 {
LinearBf16 linear_bf16_span;
DecodeBf16 decode_bf16_span;
MultiplyBf16 multiply_bf16_tiles;
}  // namespace avx512_bf16

namespace amx {
RoundHalves round_half_row;
LinearF16 linear_f16_span;
MultiplyBf16 multiply_bf16_tiles;
LinearBf16Blocks linear_bf16_blocks;
MultiplyGroups multiply_bf16_groups;
LinearGroups linear_bf16_groups;
MultiplyInt8 multiply_int8_tiles;
LinearInt8Blocks linear_int8_blocks;
KvScoresTiles kv_scores_tiles;
KvMixTiles kv_mix_tiles;
}  // namespace amx

}  // namespace tilepress
