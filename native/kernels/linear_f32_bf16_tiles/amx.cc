#include "kernels/bf16_tiles_avx512.h"
#include "kernels/linear_f32_bf16_tiles/linear_pair.h"
#include "kernels/multiply_f32_bf16_bf16/amx_bf16_unit.h"

namespace tilepress {

// Dense codes that would have to be unpacked beforehand are left to decode_bf16_any.
bool amx::linear_bf16_pair(const PairWeights& weights, const Bf16Product& product, int64_t* taken, uint8_t*) {
  const SpanWeights& one = *weights.blocks[0];
  const SpanWeights* two = weights.blocks[1];
  const int bits = one.format->bits;
  if (!one.mask && bits != 4 && bits < 8) return false;
  if (weights.scaled && LoweredNibbles::takes(one)) {
    LoweredNibbles first(one, one.packed), second(two ? *two : one, two ? two->packed : one.packed);
    if (PairMultiplier<Bf16Unit, LoweredNibbles>(product, first, two ? &second : nullptr).run()) {
      for (int block = 0; block < (two ? 2 : 1); ++block) taken[block] = 0;
      return true;
    }
  }
  return with_tile_decoder(one, weights.scaled, [&]<class Decoder>() {
    const auto took = [](const Decoder& decoder, const SpanWeights& span) {
      return span.mask && decoder.taken() >= 0 ? decoder.taken() - span.taken : decoder.taken();
    };
    Decoder first(one, one.packed), second(two ? *two : one, two ? two->packed : one.packed);
    PairMultiplier<Bf16Unit, Decoder>(product, first, two ? &second : nullptr).run();
    taken[0] = took(first, one);
    if (two) taken[1] = took(second, *two);
  });
}

}  // namespace tilepress
