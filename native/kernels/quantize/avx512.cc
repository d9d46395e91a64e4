#include "kernels/quantize/quantize_row.h"

namespace tilepress {

void avx512::quantize_row(const Format& format, const float* row, int64_t cols, GroupScales to, void* codes) {
  quantize_row_here(format, row, cols, to, codes);
}

void avx512::dequantize_row(const Format& format, const void* codes, const uint8_t* keep, int64_t cols,
                            GroupScales from, float* row) {
  dequantize_row_here(format, codes, keep, cols, from, row);
}

}  // namespace tilepress
