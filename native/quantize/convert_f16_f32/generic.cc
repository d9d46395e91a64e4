// Compiled for: portable avx2 avx512
#include "quantize/block_floats.h"
#include "tilepress/kv_bfp.h"

namespace tilepress {
namespace {

void convert_f16_f32(const float* values, const float* offsets, int64_t count, uint16_t* halves) {
  if (!offsets) {
    for (int64_t i = 0; i < count; ++i) halves[i] = float_to_fp16(values[i]);
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t bits = std::bit_cast<uint32_t>(values[i]), sign = bits & 0x80000000;
    halves[i] = float_to_fp16(std::bit_cast<float>(round_magnitudes(bits ^ sign) | sign) - offsets[i]);
  }
}

TILEPRESS_KERNEL(convert_f16_f32);

}  // namespace
}  // namespace tilepress
