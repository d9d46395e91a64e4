#include "kernels/bf16_rows_avx512.h"

namespace tilepress {
namespace {

// Both inputs of a row times the scales of its neurons, rounded to bf16; halves away from zero, which is cheaper than to
// even and no further off.
__m512i scale_row(__m512i row, __m512 scales) {
  constexpr int kAndOr = 0xea;  // (a & b) | c
  const __m512i upper = _mm512_set1_epi32(static_cast<int>(0xffff0000)), half = _mm512_set1_epi32(0x8000);
  const __m512 even = _mm512_mul_ps(_mm512_castsi512_ps(_mm512_slli_epi32(row, 16)), scales);
  const __m512 odd = _mm512_mul_ps(_mm512_castsi512_ps(_mm512_and_si512(row, upper)), scales);
  const __m512i low = _mm512_srli_epi32(_mm512_add_epi32(_mm512_castps_si512(even), half), 16);
  return _mm512_ternarylogic_epi32(_mm512_add_epi32(_mm512_castps_si512(odd), half), upper, low, kAndOr);
}

template <class Source, class Values>
int64_t decode(const SpanWeights& weights, bool scaled, const uint8_t* bytes, uint16_t* tiles) {
  const int64_t group_size = weights.format->group, inputs = weights.tiles * tile_inputs(weights.operand_bits);
  Source source(weights, bytes);
  Values values(weights);
  __m512i* to = reinterpret_cast<__m512i*>(tiles);
  float scales[kBlockNeurons];
  for (int64_t input = 0; input < inputs;) {
    const int64_t group = (weights.first + least(input, weights.inputs - 1)) / group_size;
    const int64_t group_end = (group + 1) * group_size - weights.first;
    const int64_t end = group_end < weights.inputs ? group_end : inputs;  // what pads the last tile is in the last group
    values.begin_group(group);
    for (int i = 0; scaled && i < kBlockNeurons; ++i) {
      scales[i] = load_scale(weights.format->scale, weights.scales, group * kBlockNeurons + i);
    }
    for (; input < end; input += kStepInputs) {
      RowPair pairs[kStepLines];
      source.next(values, pairs);
      for (const RowPair& pair : pairs) {
        const __m512 by = scaled ? _mm512_loadu_ps(scales) : _mm512_setzero_ps();
        _mm512_storeu_si512(to++, scaled ? scale_row(pair.first, by) : pair.first);
        _mm512_storeu_si512(to++, scaled ? scale_row(pair.second, by) : pair.second);
      }
    }
  }
  return source.taken();
}

}  // namespace

int64_t avx512::decode_bf16_span(const SpanWeights& weights, bool scaled, uint16_t* tiles, uint8_t* scratch) {
  const uint8_t* bytes = dense_bytes(weights, scratch);
  int64_t taken = 0;
  const bool done = with_rows(weights, [&]<class Source, class Values>() {
    taken = decode<Source, Values>(weights, scaled, bytes, tiles);
  });
  if (!done) return decode_any<Avx512>(weights, scaled, tiles, scratch);
  return weights.mask && taken >= 0 ? taken - weights.taken : taken;
}

}  // namespace tilepress
