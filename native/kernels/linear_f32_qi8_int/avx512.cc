#include "kernels/unpack/avx512.h"

#include "kernels/linear_f32_qi8_int/linear_block.h"

namespace tilepress {
namespace {

struct Avx512Dot : Avx512 {
  // `vpdpbusd` wants one side unsigned: operands are raised by 128, and what that adds, 128 times the sum of x, is
  // taken off again by a second product.
  static void dot(const int8_t* operands, const int8_t* x, int rows, int32_t* sums) {
    const __m512i raise = _mm512_set1_epi8(static_cast<char>(0x80));
    __m512i sum = _mm512_loadu_si512(sums), raised = _mm512_setzero_si512();
    for (int row = 0; row < rows; ++row, x += 4, operands += kVectorBytes) {
      int32_t four;
      std::memcpy(&four, x, 4);
      const __m512i lanes = _mm512_set1_epi32(four);
      sum = _mm512_dpbusd_epi32(sum, _mm512_xor_si512(_mm512_loadu_si512(operands), raise), lanes);
      raised = _mm512_dpbusd_epi32(raised, raise, lanes);
    }
    _mm512_storeu_si512(sums, _mm512_sub_epi32(sum, raised));
  }
};

}  // namespace

void avx512::linear_int8_block(const LinearBlock& block, float* out, int32_t* sums, uint8_t* scratch) {
  linear_block_with<Avx512Dot>(block, out, sums, scratch);
}

}  // namespace tilepress
