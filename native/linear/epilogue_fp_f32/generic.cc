// Compiled for: portable avx2 avx512
// A block's accumulators as the results of a layer.
#include <limits>

#include "simd/simd.h"
#include "tilepress/linear.h"

namespace tilepress {
namespace {

// convert.h's round_to_fp16, which has one NaN.
TILEPRESS_INLINE Uint16s round_to_fp16(Floats x) {
  return to_fp16(x == x ? x : splat<Floats>(std::numeric_limits<float>::quiet_NaN()));
}

// Row by row over all blocks: block by block, every cache line would be written in parts, and every row's page anew.
template <class Convert>
[[gnu::always_inline]] inline void store_as(const BlockResults& results, const Convert& convert) {
  using Values = decltype(convert(Floats{}));
  struct Block {
    Values values[kBlockVectors];
  };
  const int64_t whole = results.neurons / kBlockNeurons, rest = results.neurons % kBlockNeurons;
  const auto block_of = [&](const float* accumulators, float scale, const float* bias) __attribute__((always_inline)) {
    Block block;
    for (int i = 0; i < kBlockVectors; ++i) {
      const Floats product = load<Floats>(accumulators + i * kLanes) * scale;
      block.values[i] = convert(bias ? product + load<Floats>(bias + i * kLanes) : product);
    }
    return block;
  };
  float last_bias[kBlockNeurons] = {};
  for (int64_t i = 0; results.bias && i < rest; ++i) last_bias[i] = results.bias[whole * kBlockNeurons + i];
  for (int64_t row = 0; row < results.rows; ++row) {
    const float scale = results.scales ? results.scales[row] : 1.0f;
    const float *accumulators = results.accumulators + row * kBlockNeurons, *bias = results.bias;
    uint8_t* y = results.y + row * results.stride;
    for (int64_t i = 0; i < whole; ++i, accumulators += results.block_stride, y += sizeof(Block)) {
      const Block block = block_of(accumulators, scale, bias);
      std::memcpy(y, &block, sizeof block);
      if (bias) bias += kBlockNeurons;
    }
    if (!rest) continue;
    const Block block = block_of(accumulators, scale, bias ? last_bias : nullptr);
    std::memcpy(y, &block, static_cast<size_t>(rest) * sizeof block / kBlockNeurons);
  }
}

void epilogue_fp_f32(const BlockResults& results) {
  switch (results.type) {
    case FloatType::f32:
      return store_as(results, [](Floats x) { return x; });
    case FloatType::bf16:
      return store_as(results, to_bf16);
    case FloatType::f16:
      return store_as(results, round_to_fp16);
  }
}

TILEPRESS_KERNEL(epilogue_fp_f32);

}  // namespace
}  // namespace tilepress
