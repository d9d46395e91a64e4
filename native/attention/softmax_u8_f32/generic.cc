// Compiled for: portable avx2
// Weights of a softmax as block floating point.
#include "quantize/block_floats.h"
#include "simd/math.h"
#include "tilepress/kv_bfp.h"

namespace tilepress {
namespace {

constexpr int kVectors = kKvGroup / kLanes;

// Below e^-40, and where x is NaN, a weight is 0 once it is rounded to FP16.
inline Uint32s weights_of(Floats x) {
  return round_magnitudes(std::bit_cast<Uint32s>(exp(max(x, splat<Floats>(-40.0f)))));
}

inline void weigh_group(const float* scores, float largest, uint8_t* values, int32_t* sum, float* unit) {
  Uint32s weights[kVectors], most_bits = {};
#pragma GCC unroll 8
  for (int i = 0; i < kVectors; ++i) {
    weights[i] = weights_of(load<Floats>(scores + i * kLanes) - largest);
    most_bits = max(most_bits, weights[i]);
  }
  *unit = unit_of(reduce_max(most_bits), 8);
  const float per_unit = 1.0f / *unit;
  Int32s sums = {};
#pragma GCC unroll 8
  for (int i = 0; i < kVectors; ++i) {
    const Int32s whole = truncate_int(std::bit_cast<Floats>(weights[i]) * per_unit);
    weights[i] = std::bit_cast<Uint32s>(whole);
    sums += whole;
  }
  *sum = reduce_sum(sums);
  for (int at = 0; at < kKvGroup; at += 16) store_uint8x16(weights + at / kLanes, values + at);
}

void softmax_u8_f32(const float* scores, int64_t count, float largest, uint8_t* values, int32_t* sums, float* units) {
  for (int64_t first = 0; first < count; first += kKvGroup) {
    weigh_group(scores + first, largest, values + first, sums + first / kKvGroup, units + first / kKvGroup);
  }
}

TILEPRESS_KERNEL(softmax_u8_f32);

}  // namespace
}  // namespace tilepress
