// Compiled for: portable avx2 avx512
// Codes of one row back to float32.
#include "quantize/zero_of.h"

namespace tilepress {
namespace {

// Code to value: by table up to eight bits, by shifting otherwise.
inline float value_of(const Format& format, const void* codes, int64_t i) {
  if (format.rounding == Rounding::bf16) return bf16_to_float(static_cast<const uint16_t*>(codes)[i]);
  if (format.rounding == Rounding::fp16) return fp16_to_float(static_cast<const uint16_t*>(codes)[i]);
  return format.values[static_cast<const uint8_t*>(codes)[i]];
}

void dequantize_f32_any(const Format& format, const void* codes, const uint8_t* keep, int64_t cols, GroupScales from,
                        float* row) {
  for (int64_t group = 0, at = 0; at < cols; ++group, at += format.group) {
    const int64_t end = least(at + format.group, cols);
    const float scale = load_scale(format.scale, from.scales, group * kBlockNeurons);
    const float zero = zero_of(format, from, group * kBlockNeurons);
    for (int64_t i = at; i < end; ++i) row[i] = (value_of(format, codes, i) - zero) * scale;
  }
  if (!keep) return;
  for (int64_t i = 0; i < cols; ++i) row[i] = keep[i] ? row[i] : 0.0f;
}

TILEPRESS_KERNEL(dequantize_f32_any);

}  // namespace
}  // namespace tilepress
