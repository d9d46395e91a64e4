// Compiled for: portable avx2 avx512
// A block's sums as the results of a layer.
#include "simd/lanes.h"

namespace tilepress {
namespace {

// convert.h's round_to_bf16.
[[gnu::always_inline]] inline Halves bf16_of(Floats x) {
  const Words bits = std::bit_cast<Words>(x), rounded = bits + 0x7fff + (bits >> 16 & 1);
  return narrow((bits & 0x7fffffff) > 0x7f800000 ? Words{} + 0x7fc00000 : rounded, 16);
}

// convert.h's round_to_fp16.
[[gnu::always_inline]] inline Halves fp16_of(Floats x) {
  constexpr uint32_t kLowest = 127 - 14, kMissing = 23 - 10;  // exponent of the least normal number; bits of mantissa
  constexpr uint32_t kTooLarge = (127 + 16) << 23;            // 65536, which has the code of infinity
  const Words bits = std::bit_cast<Words>(x), magnitude = bits & 0x7fffffff;
  const Words clamped = magnitude < kTooLarge ? magnitude : Words{} + kTooLarge, own = clamped >> 23;
  const Words exponent = own < kLowest ? Words{} + kLowest : own, anchor = (exponent + kMissing) << 23;
  const Words sum = std::bit_cast<Words>(std::bit_cast<Floats>(clamped) + std::bit_cast<Floats>(anchor));
  const Words finite = (bits >> 16 & 0x8000) | (((exponent - kLowest) << 10) + (sum - anchor));
  return narrow(magnitude > 0x7f800000 ? Words{} + 0x7e00 : finite, 0);
}

// Row after row of all blocks: block after block every line would be written in parts, and every row's page anew.
template <class Convert>
[[gnu::always_inline]] inline void store_as(const BlockResults& results, const Convert& convert) {
  using Values = decltype(convert(Floats{}));
  struct Block {
    Values values[kParts];
  };
  const int64_t whole = results.neurons / kBlockNeurons, rest = results.neurons % kBlockNeurons;
  const auto block_of = [&](const float* accumulators, float scale, const float* bias) __attribute__((always_inline)) {
    Block block;
    for (int part = 0; part < kParts; ++part) {
      const Floats product = load<Floats>(accumulators + part * kLanes) * scale;
      block.values[part] = convert(bias ? product + load<Floats>(bias + part * kLanes) : product);
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
      return store_as(results, bf16_of);
    case FloatType::f16:
      return store_as(results, fp16_of);
  }
}

TILEPRESS_KERNEL(epilogue_fp_f32);

}  // namespace
}  // namespace tilepress
