#include "attention/matmul_f32_f32_sparse/multiply_units.h"
#include "tilepress/convert.h"

namespace tilepress {
namespace {

struct PlainUnit {
  template <FloatType type, int rows>
  static const uint16_t* multiply(const OneUnit& unit, const float* factors, int64_t factor_stride, float* out,
                                  int64_t stride) {
    float sums[rows][kSparseLanes] = {};
    const uint16_t* next = unit.values;
    for (int64_t vector = 0; vector < unit.vectors; ++vector, factors += 2) {
      for (uint32_t left = unit.masks[vector]; left; left &= left - 1) {
        const int bit = __builtin_ctz(left);
        const float value = type == FloatType::bf16 ? bf16_to_float(*next) : fp16_to_float(*next);
        ++next;
        for (int row = 0; row < rows; ++row) {
          sums[row][bit / 2] += value * factors[row * factor_stride + (bit & 1)];
        }
      }
    }
    for (int row = 0; row < rows; ++row) {
      for (int lane = 0; lane < kSparseLanes; ++lane) out[row * stride + lane] += sums[row][lane];
    }
    return next;
  }
};

void matmul_f32_f32_sparse(const SparseUnits& units, const SparseFactors& by, float* out, int64_t stride) {
  multiply_units<PlainUnit>(units, by, out, stride);
}

TILEPRESS_KERNEL(matmul_f32_f32_sparse);

}  // namespace
}  // namespace tilepress
