#include "kernels/bf16_rows_avx512.h"

namespace tilepress {
namespace {

// Both inputs of a row times the scales of its neurons, rounded to bf16; halves away from zero, which is cheaper than
// to even and no further off.
__m512i scale_row(__m512i row, __m512 scales) {
  constexpr int kAndOr = 0xea;  // (a & b) | c
  const __m512i upper = _mm512_set1_epi32(static_cast<int>(0xffff0000)), half = _mm512_set1_epi32(0x8000);
  const __m512 even = _mm512_mul_ps(_mm512_castsi512_ps(_mm512_slli_epi32(row, 16)), scales);
  const __m512 odd = _mm512_mul_ps(_mm512_castsi512_ps(_mm512_and_si512(row, upper)), scales);
  const __m512i low = _mm512_srli_epi32(_mm512_add_epi32(_mm512_castps_si512(even), half), 16);
  return _mm512_ternarylogic_epi32(_mm512_add_epi32(_mm512_castps_si512(odd), half), upper, low, kAndOr);
}

template <class Source, class Values, bool scaled, ScaleType type>
int64_t decode(const SpanWeights& weights, const uint8_t* bytes, uint16_t* tiles) {
  Source source(weights, bytes);
  Values values(weights);
  const int64_t inputs = weights.tiles * tile_inputs(weights.operand_bits);
  for_groups(weights, inputs, [&](int64_t group, int64_t begin, int64_t end) {
    const __m512 scales = scaled ? scales_of<type>(weights.scales, group) : _mm512_setzero_ps();
    const auto finished = [&](__m512i row) { return scaled ? scale_row(row, scales) : row; };
    values.begin_group(group);
    for (int64_t input = begin; input < end; input += kStepInputs) {
      RowPair pairs[kStepLines];
      source.next(values, pairs);
      for (const RowPair& pair : pairs) {
        _mm512_storeu_si512(tiles, finished(pair.first));
        _mm512_storeu_si512(tiles + kVectorBytes / 2, finished(pair.second));
        tiles += kVectorBytes;
      }
    }
  });
  return source.taken();
}

}  // namespace

int64_t avx512::decode_bf16_span(const SpanWeights& weights, bool scaled, uint16_t* tiles, uint8_t* scratch) {
  const uint8_t* bytes = dense_bytes(weights, scratch);
  int64_t taken = 0;
  const bool done = with_rows(weights, [&]<class Source, class Values>() {
    if (!scaled) {
      taken = decode<Source, Values, false, ScaleType::none>(weights, bytes, tiles);
      return;
    }
    with_scale_type(*weights.format,
                    [&]<ScaleType type>() { taken = decode<Source, Values, true, type>(weights, bytes, tiles); });
  });
  if (!done) return decode_any<Avx512>(weights, scaled, tiles, scratch);
  return weights.mask && taken >= 0 ? taken - weights.taken : taken;
}

}  // namespace tilepress
