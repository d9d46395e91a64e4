#include "dispatch/registry.h"

#include <stdexcept>
#include <string>

#include "kernels/all.h"

namespace tilepress {
namespace {

template <class Function>
Kernel entry(const Operation<Function>& operation, Isa isa, Function* function) {
  return {operation.name, isa, reinterpret_cast<AnyKernel>(function)};
}

const Kernel kKernels[] = {
#if defined(__x86_64__)
    entry(kQuantize, Isa::avx512, avx512::quantize_row),
    entry(kQuantize, Isa::avx2, avx2::quantize_row),
    entry(kDequantize, Isa::avx512, avx512::dequantize_row),
    entry(kDequantize, Isa::avx2, avx2::dequantize_row),
    entry(kQuantizeInt8, Isa::avx512, avx512::quantize_int8_row),
    entry(kQuantizeBfp, Isa::avx512, avx512::quantize_bfp_row),
    entry(kQuantizeInt8, Isa::avx2, avx2::quantize_int8_row),
    entry(kQuantizeBfp, Isa::avx2, avx2::quantize_bfp_row),
    entry(kPackPlanes, Isa::avx512_vbmi2, avx512_vbmi2::pack_planes),
    entry(kUnpackPlanes, Isa::avx512_vbmi2, avx512_vbmi2::unpack_planes),
    entry(kPackPlanes, Isa::avx2, avx2::pack_planes),
    entry(kUnpackPlanes, Isa::avx2, avx2::unpack_planes),
    entry(kPack, Isa::avx512_vbmi2, avx512_vbmi2::pack_block),
    entry(kUnpack, Isa::avx512_vbmi2, avx512_vbmi2::unpack_block),
    entry(kLinearInteger, Isa::avx512_vbmi2, avx512_vbmi2::linear_integer_span),
    entry(kLinearInteger, Isa::avx512_vnni, avx512_vnni::linear_integer_span),
    entry(kLinearInteger, Isa::avx2, avx2::linear_integer_span),
    entry(kLinearF32, Isa::avx512_vbmi2, avx512_vbmi2::linear_f32_span),
    entry(kLinearF32, Isa::avx512, avx512::linear_f32_span),
    entry(kLinearF32, Isa::avx2, avx2::linear_f32_span),
    entry(kDecodeF32, Isa::avx512_vbmi2, avx512_vbmi2::decode_f32_span),
    entry(kDecodeF32, Isa::avx512, avx512::decode_f32_span),
    entry(kDecodeF32, Isa::avx2, avx2::decode_f32_span),
    entry(kMultiplyF32, Isa::avx512, avx512::multiply_f32_weights),
    entry(kMultiplyF32, Isa::avx2, avx2::multiply_f32_weights),
    entry(kLinearBf16, Isa::avx512_bf16, avx512_bf16::linear_bf16_span),
    entry(kRoundHalves, Isa::amx, amx::round_half_row),
    entry(kLinearF16, Isa::amx, amx::linear_f16_span),
    entry(kDecodeBf16, Isa::avx512_bf16, avx512_bf16::decode_bf16_span),
    entry(kMultiplyBf16, Isa::amx, amx::multiply_bf16_tiles),
    entry(kMultiplyBf16, Isa::avx512_bf16, avx512_bf16::multiply_bf16_tiles),
    entry(kMultiplyGroups, Isa::amx, amx::multiply_bf16_groups),
    entry(kLinearGroups, Isa::amx, amx::linear_bf16_groups),
    entry(kLinearBf16Blocks, Isa::amx, amx::linear_bf16_blocks),
    entry(kDecodeInt8, Isa::avx512_vbmi2, avx512_vbmi2::decode_int8_span),
    entry(kMultiplyInt8, Isa::amx, amx::multiply_int8_tiles),
    entry(kLinearInt8Blocks, Isa::amx, amx::linear_int8_blocks),
    entry(kStore, Isa::avx512, avx512::store_block),
    entry(kStore, Isa::avx2, avx2::store_block),
    entry(kAttend, Isa::avx512, avx512::attend_head),
    entry(kAttend, Isa::avx2, avx2::attend_head),
    entry(kSilu, Isa::avx512, avx512::silu_floats),
    entry(kSilu, Isa::avx2, avx2::silu_floats),
    entry(kKvScores, Isa::avx512_vnni, avx512_vnni::kv_scores),
    entry(kKvScores, Isa::avx2, avx2::kv_scores),
    entry(kKvMix, Isa::avx512_vnni, avx512_vnni::kv_mix),
    entry(kKvMix, Isa::avx2, avx2::kv_mix),
    entry(kKvScoresTiles, Isa::amx, amx::kv_scores_tiles),
    entry(kKvMixTiles, Isa::amx, amx::kv_mix_tiles),
    entry(kKvWeigh, Isa::avx512, avx512::kv_weigh),
    entry(kKvWeigh, Isa::avx2, avx2::kv_weigh),
    entry(kKvLargest, Isa::avx512, avx512::kv_largest),
    entry(kKvLargest, Isa::avx2, avx2::kv_largest),
    entry(kKvHalves, Isa::avx512, avx512::kv_halves),
    entry(kKvSetKey, Isa::avx512, avx512::kv_set_key),
    entry(kKvCutKey, Isa::avx512, avx512::kv_cut_key),
    entry(kKvSetValue, Isa::avx512, avx512::kv_set_value),
    entry(kKvCutValue, Isa::avx512, avx512::kv_cut_value),
    entry(kKvHalves, Isa::avx2, avx2::kv_halves),
    entry(kKvSetKey, Isa::avx2, avx2::kv_set_key),
    entry(kKvCutKey, Isa::avx2, avx2::kv_cut_key),
    entry(kKvSetValue, Isa::avx2, avx2::kv_set_value),
    entry(kKvCutValue, Isa::avx2, avx2::kv_cut_value),
    entry(kMultiplySparse, Isa::avx512_vbmi2, avx512_vbmi2::multiply_sparse),
    entry(kExpandThin, Isa::avx512_vbmi2, avx512_vbmi2::expand_thin),
    entry(kMultiplySparse, Isa::avx2, avx2::multiply_sparse),
    entry(kExpandThin, Isa::avx2, avx2::expand_thin),
    entry(kSoftmaxWeights, Isa::avx512, avx512::softmax_weights),
    entry(kSoftmaxWeights, Isa::avx2, avx2::softmax_weights),
    entry(kRead, Isa::avx512, avx512::read_bytes),
    entry(kRead, Isa::avx2, avx2::read_bytes),
#elif defined(__aarch64__)
    entry(kPackPlanes, Isa::neon_dotprod, neon_dotprod::pack_planes),
    entry(kUnpackPlanes, Isa::neon_dotprod, neon_dotprod::unpack_planes),
    entry(kPack, Isa::neon_dotprod, neon_dotprod::pack_block),
    entry(kUnpack, Isa::neon_dotprod, neon_dotprod::unpack_block),
    entry(kLinearInteger, Isa::neon_i8mm, neon_i8mm::linear_integer_span),
    entry(kLinearInteger, Isa::neon_dotprod, neon_dotprod::linear_integer_span),
    entry(kRoundHalves, Isa::neon_dotprod, neon_dotprod::round_half_row),
    entry(kLinearF16, Isa::neon_dotprod, neon_dotprod::linear_f16_span),
    entry(kLinearF32, Isa::neon_dotprod, neon_dotprod::linear_f32_span),
    entry(kDecodeF32, Isa::neon_dotprod, neon_dotprod::decode_f32_span),
    entry(kMultiplyF32, Isa::neon_dotprod, neon_dotprod::multiply_f32_weights),
    entry(kMultiplySparse, Isa::neon_dotprod, neon_dotprod::multiply_sparse),
    entry(kExpandThin, Isa::neon_dotprod, neon_dotprod::expand_thin),
    entry(kKvScores, Isa::neon_dotprod, neon_dotprod::kv_scores),
    entry(kKvMix, Isa::neon_dotprod, neon_dotprod::kv_mix),
    entry(kKvWeigh, Isa::neon_dotprod, neon_dotprod::kv_weigh),
#endif
    entry(kQuantize, Isa::portable, portable::quantize_row),
    entry(kDequantize, Isa::portable, portable::dequantize_row),
    entry(kQuantizeInt8, Isa::portable, portable::quantize_int8_row),
    entry(kQuantizeBfp, Isa::portable, portable::quantize_bfp_row),
    entry(kPackPlanes, Isa::portable, portable::pack_planes),
    entry(kUnpackPlanes, Isa::portable, portable::unpack_planes),
    entry(kPack, Isa::portable, portable::pack_block),
    entry(kUnpack, Isa::portable, portable::unpack_block),
    entry(kLinearInteger, Isa::portable, portable::linear_integer_span),
    entry(kLinearF32, Isa::portable, portable::linear_f32_span),
    entry(kDecodeF32, Isa::portable, portable::decode_f32_span),
    entry(kMultiplyF32, Isa::portable, portable::multiply_f32_weights),
    entry(kDecodeBf16, Isa::portable, portable::decode_bf16_span),
    entry(kMultiplyBf16, Isa::portable, portable::multiply_bf16_tiles),
    entry(kMultiplyGroups, Isa::portable, portable::multiply_bf16_groups),
    entry(kLinearGroups, Isa::portable, portable::linear_bf16_groups),
    entry(kLinearBf16Blocks, Isa::portable, portable::linear_bf16_blocks),
    entry(kDecodeInt8, Isa::portable, portable::decode_int8_span),
    entry(kMultiplyInt8, Isa::portable, portable::multiply_int8_tiles),
    entry(kLinearInt8Blocks, Isa::portable, portable::linear_int8_blocks),
    entry(kStore, Isa::portable, portable::store_block),
    entry(kAttend, Isa::portable, portable::attend_head),
    entry(kSilu, Isa::portable, portable::silu_floats),
    entry(kKvScores, Isa::portable, portable::kv_scores),
    entry(kKvMix, Isa::portable, portable::kv_mix),
    entry(kKvScoresTiles, Isa::portable, portable::kv_scores_tiles),
    entry(kKvMixTiles, Isa::portable, portable::kv_mix_tiles),
    entry(kKvWeigh, Isa::portable, portable::kv_weigh),
    entry(kKvLargest, Isa::portable, portable::kv_largest),
    entry(kKvHalves, Isa::portable, portable::kv_halves),
    entry(kKvSetKey, Isa::portable, portable::kv_set_key),
    entry(kKvCutKey, Isa::portable, portable::kv_cut_key),
    entry(kKvSetValue, Isa::portable, portable::kv_set_value),
    entry(kKvCutValue, Isa::portable, portable::kv_cut_value),
    entry(kMultiplySparse, Isa::portable, portable::multiply_sparse),
    entry(kExpandThin, Isa::portable, portable::expand_thin),
    entry(kSoftmaxWeights, Isa::portable, portable::softmax_weights),
    entry(kRead, Isa::portable, portable::read_bytes),
};

}  // namespace

std::span<const Kernel> kernels() { return kKernels; }

const Kernel* find(std::string_view operation) {
  const Isa active = active_isa();
  for (const Kernel& kernel : kKernels) {
    if (kernel.operation == operation && permitted(kernel.isa, active)) return &kernel;
  }
  return nullptr;
}

const Kernel& choose(std::string_view operation) {
  if (const Kernel* found = find(operation)) return *found;
  std::string where;
  for (const Kernel& kernel : kKernels) {
    if (kernel.operation == operation) where += (where.empty() ? "" : ", ") + std::string(isa_name(kernel.isa));
  }
  throw std::invalid_argument("no kernel for " + std::string(operation) + " on " + std::string(isa_name(active_isa())) +
                              "; this build has " + (where.empty() ? "none" : "one for " + where));
}

}  // namespace tilepress
