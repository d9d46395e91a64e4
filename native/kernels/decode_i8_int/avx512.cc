// Sparse codes go straight to their places; what decode_operands does in three passes over memory is one here.
#include "kernels/unpack/avx512.h"

#include "kernels/linear_f32_i8_int/finish_avx512.h"

namespace tilepress {
namespace {

// What makes a code its operand: (code ^ flip) - less, as to_operands has it.
struct ToOperand {
  explicit ToOperand(const Format& format) {
    const int sign = 1 << (format.bits - 1);
    const bool flips = format.zero_point ? format.bits == 8 : format.bits < 8;
    flip = _mm512_set1_epi8(static_cast<char>(flips ? sign : 0));
    less = _mm512_set1_epi8(static_cast<char>(flips && !format.zero_point ? sign : 0));
  }

  __m512i operator()(__m512i codes) const { return _mm512_sub_epi8(_mm512_xor_si512(codes, flip), less); }

  __m512i flip, less;
};

template <bool bytes>
int64_t decode_sparse(const SpanWeights& weights, int8_t* tiles) {
  const ToOperand to_operand(*weights.format);
  const int64_t group_size = weights.format->group, inputs = weights.tiles * kTileInputs;
  Avx512Stream stream(weights);
  const uint8_t* mask = weights.mask;
  int64_t group = weights.first / group_size, end = (group + 1) * group_size - weights.first;
  for (int64_t begin = 0; begin < inputs; begin = end, end += group_size, ++group) {
    if (end >= weights.inputs) end = inputs;
    const __m512i others = dropped(weights, group);
    for (int64_t input = begin; input < end; input += 4, mask += 8, tiles += kVectorBytes) {
      uint64_t bits;
      std::memcpy(&bits, mask, 8);
      _mm512_storeu_si512(tiles, to_operand(stream.template expand<bytes>(bits, others)));
    }
  }
  return stream.taken() < 0 ? -1 : stream.taken() - weights.taken;
}

int64_t decode_nibbles(const SpanWeights& weights, int8_t* tiles) {
  const ToOperand to_operand(*weights.format);
  const __m512i low = _mm512_set1_epi8(15);
  const uint8_t* packed = weights.packed;
  for (int64_t i = 0; i < weights.tiles * kTileInputs; i += 8, packed += kVectorBytes, tiles += 2 * kVectorBytes) {
    const __m512i pairs = _mm512_loadu_si512(packed);
    prefetch_ahead(packed);
    _mm512_storeu_si512(tiles, to_operand(_mm512_and_si512(pairs, low)));
    _mm512_storeu_si512(tiles + kVectorBytes, to_operand(_mm512_and_si512(_mm512_srli_epi16(pairs, 4), low)));
  }
  return 0;
}

}  // namespace

int64_t avx512::decode_int8_span(const SpanWeights& weights, int8_t* tiles, uint8_t* scratch) {
  const int bits = weights.format->bits;
  if (weights.mask) return bits == 8 ? decode_sparse<true>(weights, tiles) : decode_sparse<false>(weights, tiles);
  if (bits == 4) return decode_nibbles(weights, tiles);
  return decode_operands<Avx512>(weights, reinterpret_cast<uint8_t*>(tiles), scratch);
}

}  // namespace tilepress
