// Compiled for: portable avx2 avx512
// Group scales and codes of one row: what formats/reference.py does, operation for operation in float32.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "quantize/zero_of.h"

namespace tilepress {
namespace {

constexpr float kFloatMax = std::numeric_limits<float>::max();

// Nearest integer, ties to even, of |x| < 2^22: adding 1.5 * 2^23 leaves no bits for a fraction.
inline float round_even(float x) { return (x + 0x1.8p23f) - 0x1.8p23f; }

inline float clamp(float x, float low, float high) {
  const float raised = x < low ? low : x;
  return raised > high ? high : raised;
}

// The exponent of a float below its smallest normal number lies in the place of its highest bit.
int exponent_of(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  return bits >= 0x00800000 ? static_cast<int>(bits >> 23) - 127 : -118 - __builtin_clz(bits);
}

uint8_t e8m0_scale(float extent, int emax) {
  if (extent == 0) return 127;
  return static_cast<uint8_t>(least(most(exponent_of(extent) - emax, -127), 127) + 127);
}

// A scale is at least the smallest positive number of its type.
void store_scale(const Format& format, float extent, void* scales, int64_t index) {
  extent = least(extent, kFloatMax);
  const float quotient = extent == 0 ? 1.0f : least(extent / format.max, kFloatMax);
  switch (format.scale) {
    case ScaleType::e8m0:
      static_cast<uint8_t*>(scales)[index] = e8m0_scale(extent, format.emax);
      break;
    case ScaleType::bf16:
      static_cast<uint16_t*>(scales)[index] = most<uint16_t>(float_to_bf16(quotient), 1);
      break;
    case ScaleType::fp16:
      static_cast<uint16_t*>(scales)[index] = most<uint16_t>(float_to_fp16(quotient), 1);
      break;
    case ScaleType::fp32:
      static_cast<float*>(scales)[index] = most(quotient, std::numeric_limits<float>::denorm_min());
      break;
    case ScaleType::none:
      break;
  }
}

struct Range {
  float below, above;  // how far the values reach below and above zero; neither is negative
};

// As integers, floats of one sign are ordered, and the compiler may take their maximum in any order.
Range range_of(const float* x, int64_t count) {
  int32_t below = 0, above = 0;
  for (int64_t i = 0; i < count; ++i) {
    const int32_t bits = std::bit_cast<int32_t>(x[i]);
    const int32_t negated = bits ^ std::numeric_limits<int32_t>::min();
    above = bits > above ? bits : above;
    below = negated > below ? negated : below;
  }
  return {std::bit_cast<float>(below), std::bit_cast<float>(above)};
}

template <bool zero_point>
void encode_integers(const Format& format, const float* x, int64_t count, float scale, float zero, uint8_t* codes) {
  const float low = format.low, high = format.high;
  const int mask = (1 << format.bits) - 1;
  for (int64_t i = 0; i < count; ++i) {
    const float place = zero_point ? x[i] / scale + zero : x[i] / scale;
    const int code = static_cast<int>(round_even(clamp(place, low, high)));
    codes[i] = static_cast<uint8_t>(zero_point ? code : code & mask);
  }
}

void encode_minifloats(const Format& format, const float* x, int64_t count, float scale, uint8_t* codes) {
  const int mantissa_bits = format.mantissa_bits, min_exponent = format.min_exponent, sign_shift = 32 - format.bits;
  const uint32_t sign_bit = 1u << (format.bits - 1);
  const float max = format.max;
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t bits = std::bit_cast<uint32_t>(x[i] / scale);
    const float magnitude = std::bit_cast<float>(bits & 0x7fffffff);
    const uint32_t code = round_magnitude(magnitude < max ? magnitude : max, mantissa_bits, min_exponent);
    codes[i] = static_cast<uint8_t>((bits >> sign_shift & sign_bit) | code);
  }
}

constexpr int kLanes = 16;

// How many thresholds are <= x: counted one by one where there are few, which vectors do best, else by
// halving.
void rank_lanes(const Format& format, const float* x, int* rank) {
  for (int lane = 0; lane < kLanes; ++lane) rank[lane] = 0;
  if (format.search_steps <= 4) {
    for (int t = 0; t < (1 << format.search_steps) - 1; ++t) {
      for (int lane = 0; lane < kLanes; ++lane) rank[lane] += format.thresholds[t] <= x[lane];
    }
    return;
  }
  for (int step = 1 << format.search_steps >> 1; step; step >>= 1) {
    for (int lane = 0; lane < kLanes; ++lane) {
      rank[lane] += format.thresholds[rank[lane] + step - 1] <= x[lane] ? step : 0;
    }
  }
}

void encode_table(const Format& format, const float* x, int64_t count, float scale, uint8_t* codes) {
  float ratio[kLanes] = {};
  int rank[kLanes];
  for (int64_t i = 0; i < count; i += kLanes) {
    const int lanes = static_cast<int>(least<int64_t>(kLanes, count - i));
    for (int lane = 0; lane < lanes; ++lane) ratio[lane] = x[i + lane] / scale;
    rank_lanes(format, ratio, rank);
    for (int lane = 0; lane < lanes; ++lane) codes[i + lane] = format.codes[rank[lane]];
  }
}

template <uint16_t (*convert)(float)>
void encode_half(const float* x, int64_t count, float scale, uint16_t* codes) {
  for (int64_t i = 0; i < count; ++i) codes[i] = convert(clamp(x[i] / scale, -kFloatMax, kFloatMax));
}

void encode_group(const Format& format, const float* x, int64_t count, float scale, float zero, void* codes,
                  int64_t at) {
  uint8_t* bytes = static_cast<uint8_t*>(codes) + at;
  uint16_t* halves = static_cast<uint16_t*>(codes) + at;
  switch (format.rounding) {
    case Rounding::integer:
      return format.zero_point ? encode_integers<true>(format, x, count, scale, zero, bytes)
                               : encode_integers<false>(format, x, count, scale, zero, bytes);
    case Rounding::minifloat:
      return encode_minifloats(format, x, count, scale, bytes);
    case Rounding::table:
      return encode_table(format, x, count, scale, bytes);
    case Rounding::bf16:
      return encode_half<float_to_bf16>(x, count, scale, halves);
    case Rounding::fp16:
      return encode_half<float_to_fp16>(x, count, scale, halves);
  }
}

// The zero point nearest to where zero lies between the codes.
uint8_t stored_zero(const Format& format, float place, bool whole) {
  const int shift = zero_shift(format);
  if (whole) return static_cast<uint8_t>(static_cast<int>(round_even(least(place, format.high))) << shift);
  return static_cast<uint8_t>(round_even(least(place * static_cast<float>(1 << shift), 255.0f)));
}

void set_scale(const Format& format, const float* x, int64_t count, GroupScales to, int64_t index) {
  const Range range = range_of(x, count);
  store_scale(format, format.zero_point ? range.above + range.below : most(range.above, range.below), to.scales, index);
  if (!format.zero_point) return;
  const float place = range.below / load_scale(format.scale, to.scales, index);
  to.zeros[index] = stored_zero(format, place, to.whole);
}

void quantize_any_f32(const Format& format, const float* row, int64_t cols, GroupScales to, void* codes) {
  for (int64_t group = 0, at = 0; at < cols; ++group, at += format.group) {
    const int64_t count = least(format.group, cols - at);
    const int64_t index = group * kBlockNeurons;
    if (format.scale != ScaleType::none && !to.given) set_scale(format, row + at, count, to, index);
    const float scale = load_scale(format.scale, to.scales, index);
    encode_group(format, row + at, count, scale, zero_of(format, to, index), codes, at);
  }
}

TILEPRESS_KERNEL(quantize_any_f32);

}  // namespace
}  // namespace tilepress
