// Compiled for: portable avx2 avx512
// Weights of a softmax as block floating point, rows in lanes.
#include "quantize/block_floats.h"
#include "simd/math.h"
#include "tilepress/kv_bfp.h"
#if defined(__AVX512F__)
#include "attention/exponentials_avx512.h"
#endif

namespace tilepress {
namespace {

// Bits of the weights rounded to FP16, or just as good where they are cut to 8 bits.
inline Uint32s weights_of(Floats x) {
#if defined(__AVX512F__)
  return std::bit_cast<Uint32s>(raised_to_fp16(exponentials(std::bit_cast<__m512>(x))));
#else
  return round_magnitudes(std::bit_cast<Uint32s>(exp(max(x, splat<Floats>(-40.0f)))));
#endif
}

// Some rows, kLanes of them.
inline void weigh(const float* scores, const float* largest, uint16_t* weights, float* sums) {
  Uint32s all[kKvPageTokens], most_bits = {};
  const Floats less = load<Floats>(largest);
  for (int64_t i = 0; i < kKvPageTokens; ++i) {
    all[i] = weights_of(load<Floats>(scores + i * kTileRows) - less);
    most_bits = max(most_bits, all[i]);
  }
  const Uint32s field = max((most_bits >> 23), splat<Uint32s>(127u - 14));  // of FP16, 1 at least, with float's bias
  const Uint32s unit_bits = (field - 7) << 23;
  const Floats unit = std::bit_cast<Floats>(unit_bits), per_unit = std::bit_cast<Floats>((254u << 23) - unit_bits);
  Int32s sum = {};
  const auto weight = [&](int64_t i) __attribute__((always_inline)) {
    const Int32s whole = truncate_int(std::bit_cast<Floats>(all[i]) * per_unit);
    sum += whole;
    return std::bit_cast<Uint32s>(int_to_floats(whole) * unit);
  };
  for (int64_t i = 0; i < kKvPageTokens; i += 2) {
    const Uint32s first = weight(i) >> 16, second = weight(i + 1) & 0xffff0000;
    store(first | second, weights + i * kTileRows);
  }
  store(load<Floats>(sums) + int_to_floats(sum) * unit, sums);
}

void softmax_bf16_f32(const float* scores, const float* largest, uint16_t* weights, float* sums) {
  for (int row = 0; row < kTileRows; row += kLanes) weigh(scores + row, largest + row, weights + 2 * row, sums + row);
}

TILEPRESS_KERNEL(softmax_bf16_f32);

}  // namespace
}  // namespace tilepress
