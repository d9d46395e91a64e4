#include "linear/few_rows_avx512.h"

namespace tilepress {
namespace {

struct Bf16Products {
  using Number = uint16_t;

  [[gnu::always_inline]] static __m512 add_pairs(__m512 sum, __m512i row, const uint16_t* x) {
    int32_t pair;
    std::memcpy(&pair, x, 4);
    return _mm512_dpbf16_ps(sum, std::bit_cast<__m512bh>(row), std::bit_cast<__m512bh>(_mm512_set1_epi32(pair)));
  }
  [[gnu::always_inline]] static void add(__m512* sums, const RowPair& pair, const uint16_t* x) {
    sums[0] = add_pairs(sums[0], pair.first, x);
    sums[1] = add_pairs(sums[1], pair.second, x + 2);
  }
};

// For weights that no Source supports, or that must be scaled before they are summed: decodes them to bf16 tiles first.
int64_t multiply_decoded(const KPanel& weights, const FloatActivations<uint16_t>& x, float* out, uint8_t* scratch) {
  auto* tiles = reinterpret_cast<uint16_t*>(scratch + (weights.tiles + 1) * kMaxTileBytes);
  const int64_t consumed = decode_any<Vbmi2>(weights, scales_first(*weights.format), tiles, scratch);
  if (consumed < 0) return consumed;
  Format format = *weights.format;
  if (scales_first(format)) format.scale = ScaleType::none;
  format.rounding = Rounding::bf16;
  format.bits = 16;
  KPanel decoded = weights;
  decoded.format = &format;
  decoded.operand_bits = 16;
  decoded.mask = nullptr;
  decoded.packed = reinterpret_cast<uint8_t*>(tiles);
  multiply_row_batches<4, DenseWords, Bf16Words>(Bf16Products(), decoded, x, scratch, out);
  return consumed;
}

int64_t linear_f32_bf16_any(const KPanel& weights, const FloatActivations<uint16_t>& x, float* out, uint8_t* scratch) {
  if (scales_first(*weights.format)) return multiply_decoded(weights, x, out, scratch);
  unpack_dense_bytes(weights, scratch);
  int64_t consumed = 0;
  const bool done = with_source<true>(weights, [&]<class Source, class Values>() {
    consumed = multiply_row_batches<4, Source, Values>(Bf16Products(), weights, x, scratch, out);
  });
  return done ? consumed : multiply_decoded(weights, x, out, scratch);
}

TILEPRESS_KERNEL(linear_f32_bf16_any);

}  // namespace
}  // namespace tilepress
