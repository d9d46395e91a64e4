#include "linear/f32_lookups_avx512.h"
#include "linear/few_rows_avx512.h"

namespace tilepress {
namespace {

// Products of bf16 weights and float32 activations.
struct FloatProducts {
  using Number = float;

  [[gnu::always_inline]] static void add(__m512* sums, const RowPair& pair, const float* x) {
    sums[0] = add_row(sums[0], pair.first, x);
    sums[1] = add_row(sums[1], pair.second, x + 2);
  }

 private:
  [[gnu::always_inline]] static __m512 add_row(__m512 sum, __m512i row, const float* x) {
    const __m512i upper = _mm512_set1_epi32(static_cast<int>(0xffff0000));
    const __m512 even = _mm512_castsi512_ps(_mm512_slli_epi32(row, 16));
    const __m512 odd = _mm512_castsi512_ps(_mm512_and_si512(row, upper));
    return _mm512_fmadd_ps(odd, _mm512_set1_ps(x[1]), _mm512_fmadd_ps(even, _mm512_set1_ps(*x), sum));
  }
};

// Up to this many rows, it is faster to decode the weights again for every four rows than to decode them to memory.
constexpr int kFewRows = 8;

int64_t linear_f32_f32_any(const KPanel& k_panel, const FloatActivations<float>& x, float* out, uint8_t* scratch) {
  const bool few = x.batch <= kFewRows && k_panel.format->in_bf16 && !scales_first(*k_panel.format);
  int64_t consumed = 0;
  if (few) unpack_dense_bytes(k_panel, scratch);
  const bool done = few && with_source<true>(k_panel, [&]<class Source, class Values>() {
                      consumed = multiply_row_batches<4, Source, Values>(FloatProducts(), k_panel, x, scratch, out);
                    });
  return done ? consumed : linear_k_panel<Lookups>(k_panel, x, out, scratch);
}

TILEPRESS_KERNEL(linear_f32_f32_any);

}  // namespace
}  // namespace tilepress
