// The one list of kernels, in priority order.
#pragma once

#include <span>
#include <string_view>

#include "dispatch/isa.h"
#include "tilepress/kernels.h"
#include "tilepress/kv.h"
#include "tilepress/kv_sparse.h"
#include "tilepress/kv_thin.h"

namespace tilepress {

using AnyKernel = void (*)();

struct Kernel {
  std::string_view operation;
  Isa isa;
  AnyKernel function;
};

// Operations, and the type of the function that does each.
template <class Function>
struct Operation {
  std::string_view name;
};

inline constexpr Operation<QuantizeRow> kQuantize{"quantize"};
inline constexpr Operation<DequantizeRow> kDequantize{"dequantize"};
inline constexpr Operation<QuantizeBfp> kQuantizeBfp{"quantize_bfp"};
inline constexpr Operation<PackPlanes> kPackPlanes{"pack_planes"};
inline constexpr Operation<UnpackPlanes> kUnpackPlanes{"unpack_planes"};
inline constexpr Operation<PackBlock> kPack{"pack"};
inline constexpr Operation<UnpackBlock> kUnpack{"unpack"};
inline constexpr Operation<LinearInteger> kLinearInteger{"linear_f32_i8_int"};
inline constexpr Operation<LinearF32> kLinearF32{"linear_f32_f32_any"};
inline constexpr Operation<LinearBf16> kLinearBf16{"linear_f32_bf16_any"};
inline constexpr Operation<DecodeBf16> kDecodeBf16{"decode_bf16_any"};
inline constexpr Operation<MultiplyBf16> kMultiplyBf16{"multiply_f32_bf16_bf16"};
inline constexpr Operation<MultiplyGroups> kMultiplyGroups{"multiply_f32_bf16_groups"};
inline constexpr Operation<LinearGroups> kLinearGroups{"linear_f32_bf16_groups"};
inline constexpr Operation<LinearBf16Pair> kLinearBf16Pair{"linear_f32_bf16_tiles"};
inline constexpr Operation<DecodeInt8> kDecodeInt8{"decode_i8_int"};
inline constexpr Operation<MultiplyInt8> kMultiplyInt8{"multiply_f32_i8_i8"};
inline constexpr Operation<LinearInt8Pair> kLinearInt8Pair{"linear_f32_i8_tiles"};
inline constexpr Operation<StoreBlock> kStore{"store"};
inline constexpr Operation<AttendHead> kAttend{"attend"};
inline constexpr Operation<SiluFloats> kSilu{"silu"};
inline constexpr Operation<KvScores> kKvScores{"scores_f32_bfp_bfp"};
inline constexpr Operation<KvMix> kKvMix{"mix_f32_bfp_bfp"};
inline constexpr Operation<KvWeigh> kKvWeigh{"weights_u8_f32"};
inline constexpr Operation<MultiplySparse> kMultiplySparse{"multiply_f32_f32_sparse"};
inline constexpr Operation<ExpandThin> kExpandThin{"expand_thin"};
inline constexpr Operation<SoftmaxWeights> kSoftmaxWeights{"softmax_f32"};
inline constexpr Operation<ReadBytes> kRead{"read"};

// All kernels of this build; of one operation, the one to prefer comes first.
std::span<const Kernel> kernels();

// The first kernel of the operation that the instruction set in force permits; null where there is none.
const Kernel* find(std::string_view operation);

// The same, of an operation that has a portable kernel, as nearly all have.
const Kernel& choose(std::string_view operation);

template <class Function>
Function* choose(Operation<Function> operation) {
  return reinterpret_cast<Function*>(choose(operation.name).function);
}

}  // namespace tilepress
