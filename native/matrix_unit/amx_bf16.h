// bf16 on AMX: the Unit of tile_products.h, block_pair.h and bf16_groups.h.
#pragma once

#include <immintrin.h>

#include "matrix_unit/amx.h"

namespace tilepress {
namespace {

struct Bf16Unit : AmxUnit {
  template <int sum, int x, int weights>
  void add_product() {
    __asm__ volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(sum), "i"(x), "i"(weights));
  }

  static void add_scaled(const float* sums, const float* scales, int rows, float* out) {
    const __m512 scale = scales ? _mm512_loadu_ps(scales) : _mm512_set1_ps(1.0f);
    for (int row = 0; row < rows; ++row, sums += kBlockNeurons, out += kBlockNeurons) {
      _mm512_storeu_ps(out, _mm512_fmadd_ps(_mm512_load_ps(sums), scale, _mm512_loadu_ps(out)));
    }
  }
};

}  // namespace
}  // namespace tilepress
