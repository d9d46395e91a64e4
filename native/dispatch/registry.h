// The one list of kernels, in priority order.
#pragma once

#include <atomic>
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

inline constexpr Kernel kNoKernel = {};

// An operation, and the type of the function that does it. It remembers its kernel for each instruction set in force:
// a call for which memory has to be waited for, because weights have put everything else out of the caches, should look
// at little.
template <class Function>
struct Operation {
  std::string_view name;
  mutable std::atomic<const Kernel*> known[kIsas] = {};
};

inline constinit const Operation<QuantizeRow> kQuantize{"quantize"};
inline constinit const Operation<DequantizeRow> kDequantize{"dequantize"};
inline constinit const Operation<QuantizeInt8> kQuantizeInt8{"quantize_int8"};
inline constinit const Operation<QuantizeBfp> kQuantizeBfp{"quantize_bfp"};
inline constinit const Operation<RoundHalves> kRoundHalves{"round_f16"};
inline constinit const Operation<PackPlanes> kPackPlanes{"pack_planes"};
inline constinit const Operation<UnpackPlanes> kUnpackPlanes{"unpack_planes"};
inline constinit const Operation<PackBlock> kPack{"pack"};
inline constinit const Operation<UnpackBlock> kUnpack{"unpack"};
inline constinit const Operation<LinearInteger> kLinearInteger{"linear_f32_i8_int"};
inline constinit const Operation<LinearF32> kLinearF32{"linear_f32_f32_any"};
inline constinit const Operation<DecodeF32> kDecodeF32{"decode_f32_any"};
inline constinit const Operation<MultiplyF32> kMultiplyF32{"multiply_f32_f32_f32"};
inline constinit const Operation<LinearBf16> kLinearBf16{"linear_f32_bf16_any"};
inline constinit const Operation<LinearF16> kLinearF16{"linear_f32_f16_f16"};
inline constinit const Operation<DecodeBf16> kDecodeBf16{"decode_bf16_any"};
inline constinit const Operation<MultiplyBf16> kMultiplyBf16{"multiply_f32_bf16_bf16"};
inline constinit const Operation<MultiplyGroups> kMultiplyGroups{"multiply_f32_bf16_groups"};
inline constinit const Operation<LinearGroups> kLinearGroups{"linear_f32_bf16_groups"};
inline constinit const Operation<LinearBf16Blocks> kLinearBf16Blocks{"linear_f32_bf16_tiles"};
inline constinit const Operation<DecodeInt8> kDecodeInt8{"decode_i8_int"};
inline constinit const Operation<MultiplyInt8> kMultiplyInt8{"multiply_f32_i8_i8"};
inline constinit const Operation<LinearInt8Blocks> kLinearInt8Blocks{"linear_f32_i8_tiles"};
inline constinit const Operation<StoreBlock> kStore{"store"};
inline constinit const Operation<AttendHead> kAttend{"attend"};
inline constinit const Operation<SiluFloats> kSilu{"silu"};
inline constinit const Operation<KvScores> kKvScores{"scores_f32_bfp_bfp"};
inline constinit const Operation<KvMix> kKvMix{"mix_f32_bfp_bfp"};
inline constinit const Operation<KvScoresTiles> kKvScoresTiles{"scores_f32_bf16_bfp"};
inline constinit const Operation<KvMixTiles> kKvMixTiles{"mix_f32_bf16_bfp"};
inline constinit const Operation<KvWeigh> kKvWeigh{"weights_u8_f32"};
inline constinit const Operation<KvLargest> kKvLargest{"largest_f32"};
inline constinit const Operation<KvHalves> kKvHalves{"halves_f16_f32"};
inline constinit const Operation<KvSetKey> kKvSetKey{"set_key_bfp"};
inline constinit const Operation<KvCutKey> kKvCutKey{"cut_key_bfp"};
inline constinit const Operation<KvSetValue> kKvSetValue{"set_value_bfp"};
inline constinit const Operation<KvCutValue> kKvCutValue{"cut_value_bfp"};
inline constinit const Operation<MultiplySparse> kMultiplySparse{"multiply_f32_f32_sparse"};
inline constinit const Operation<ExpandThin> kExpandThin{"expand_thin"};
inline constinit const Operation<SoftmaxWeights> kSoftmaxWeights{"softmax_f32"};
inline constinit const Operation<ReadBytes> kRead{"read"};

// All kernels of this build; of one operation, the one to prefer comes first.
std::span<const Kernel> kernels();

// The first kernel of the operation that the instruction set in force permits; null where there is none.
const Kernel* find(std::string_view operation);

// The same, of an operation that has a portable kernel, as nearly all have.
const Kernel& choose(std::string_view operation);

// Both for an operation that remembers.
template <class Function>
const Kernel* find(const Operation<Function>& operation) {
  std::atomic<const Kernel*>& known = operation.known[static_cast<int>(active_isa())];
  const Kernel* kernel = known.load(std::memory_order_relaxed);
  if (!kernel) {
    const Kernel* found = find(operation.name);
    known.store(kernel = found ? found : &kNoKernel, std::memory_order_relaxed);
  }
  return kernel == &kNoKernel ? nullptr : kernel;
}

template <class Function>
Function* choose(const Operation<Function>& operation) {
  const Kernel* found = find(operation);
  return reinterpret_cast<Function*>((found ? *found : choose(operation.name)).function);
}

}  // namespace tilepress
