// Group scales and codes of one row; the C++ twin of formats/reference.py, operation for operation in float32.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "kernels/all.h"
#include "tilepress/convert.h"

namespace tilepress::portable {
namespace {

constexpr float kFloatMax = std::numeric_limits<float>::max();

// Nearest integer, ties to even, of |x| < 2^22: adding 1.5 * 2^23 leaves no bits for a fraction.
inline float round_even(float x) { return (x + 0x1.8p23f) - 0x1.8p23f; }

inline float clamp(float x, float low, float high) {
  const float raised = x < low ? low : x;
  return raised > high ? high : raised;
}

float load_scale(ScaleType type, const void* scales, int64_t index) {
  switch (type) {
    case ScaleType::e8m0: {
      const uint32_t code = static_cast<const uint8_t*>(scales)[index];
      if (code == 255) return std::numeric_limits<float>::quiet_NaN();
      return std::bit_cast<float>(code ? code << 23 : 1u << 22);
    }
    case ScaleType::bf16:
      return bf16_to_float(static_cast<const uint16_t*>(scales)[index]);
    case ScaleType::fp16:
      return fp16_to_float(static_cast<const uint16_t*>(scales)[index]);
    case ScaleType::fp32:
      return static_cast<const float*>(scales)[index];
    case ScaleType::none:
      break;
  }
  return 1.0f;
}

uint8_t e8m0_scale(float extent, int emax) {
  if (extent == 0) return 127;
  int exponent;
  std::frexp(extent, &exponent);
  return static_cast<uint8_t>(std::clamp(exponent - 1 - emax, -127, 127) + 127);
}

// A scale is at least the smallest positive number of its type.
void store_scale(const Format& format, float extent, void* scales, int64_t index) {
  extent = std::min(extent, kFloatMax);
  const float quotient = extent == 0 ? 1.0f : extent / format.max;
  switch (format.scale) {
    case ScaleType::e8m0:
      static_cast<uint8_t*>(scales)[index] = e8m0_scale(extent, format.emax);
      break;
    case ScaleType::bf16:
      static_cast<uint16_t*>(scales)[index] = std::max<uint16_t>(float_to_bf16(quotient), 1);
      break;
    case ScaleType::fp16:
      static_cast<uint16_t*>(scales)[index] = std::max<uint16_t>(float_to_fp16(quotient), 1);
      break;
    case ScaleType::fp32:
      static_cast<float*>(scales)[index] = std::max(quotient, std::numeric_limits<float>::denorm_min());
      break;
    case ScaleType::none:
      break;
  }
}

struct Range {
  float low, high;  // both hold zero
};

// Eight lanes, so that the compiler may keep them in vectors without reordering anything.
Range range_of(const float* x, int64_t count) {
  float low[8] = {}, high[8] = {};
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    for (int lane = 0; lane < 8; ++lane) {
      low[lane] = x[i + lane] < low[lane] ? x[i + lane] : low[lane];
      high[lane] = x[i + lane] > high[lane] ? x[i + lane] : high[lane];
    }
  }
  for (; i < count; ++i) {
    low[0] = std::min(low[0], x[i]);
    high[0] = std::max(high[0], x[i]);
  }
  return {*std::min_element(low, low + 8), *std::max_element(high, high + 8)};
}

template <bool signed_codes>
void encode_integers(const Format& format, const float* x, int64_t count, float scale, float zero, uint8_t* codes) {
  const float low = format.low - zero, high = format.high - zero;
  const int mask = (1 << format.bits) - 1;
  for (int64_t i = 0; i < count; ++i) {
    const int code = static_cast<int>(round_even(clamp(x[i] / scale, low, high)) + zero);
    codes[i] = static_cast<uint8_t>(signed_codes ? code & mask : code);
  }
}

// How many thresholds are <= x, by halving; eight searches at a time hide each other's latency.
template <int lanes>
inline void search(const Format& format, const float* x, int* rank) {
  for (int lane = 0; lane < lanes; ++lane) rank[lane] = 0;
  for (int step = 1 << format.search_steps >> 1; step; step >>= 1) {
    for (int lane = 0; lane < lanes; ++lane) {
      rank[lane] += format.thresholds[rank[lane] + step - 1] <= x[lane] ? step : 0;
    }
  }
}

template <bool magnitude, int lanes>
inline void encode_lanes(const Format& format, const float* x, float scale, uint8_t* codes) {
  float ratio[lanes];
  int rank[lanes];
  for (int lane = 0; lane < lanes; ++lane) {
    ratio[lane] = x[lane] / scale;
    if (magnitude) ratio[lane] = std::fabs(ratio[lane]);
  }
  search<lanes>(format, ratio, rank);
  for (int lane = 0; lane < lanes; ++lane) {
    const int sign = magnitude && std::signbit(x[lane]) ? 1 << (format.bits - 1) : 0;
    codes[lane] = static_cast<uint8_t>(sign | format.codes[rank[lane]]);
  }
}

template <bool magnitude>
void encode_nearest(const Format& format, const float* x, int64_t count, float scale, uint8_t* codes) {
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) encode_lanes<magnitude, 8>(format, x + i, scale, codes + i);
  for (; i < count; ++i) encode_lanes<magnitude, 1>(format, x + i, scale, codes + i);
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
      return format.zero_point ? encode_integers<false>(format, x, count, scale, zero, bytes)
                               : encode_integers<true>(format, x, count, scale, zero, bytes);
    case Rounding::magnitude:
      return encode_nearest<true>(format, x, count, scale, bytes);
    case Rounding::table:
      return encode_nearest<false>(format, x, count, scale, bytes);
    case Rounding::bf16:
      return encode_half<float_to_bf16>(x, count, scale, halves);
    case Rounding::fp16:
      return encode_half<float_to_fp16>(x, count, scale, halves);
  }
}

void set_scale(const Format& format, const float* x, int64_t count, GroupScales to, int64_t index) {
  const Range range = range_of(x, count);
  store_scale(format, format.zero_point ? range.high - range.low : std::max(-range.low, range.high), to.scales, index);
  if (!format.zero_point) return;
  const float scale = load_scale(format.scale, to.scales, index);
  to.zeros[index] = static_cast<uint8_t>(round_even(std::min(-range.low / scale, format.high)));
}

float zero_of(const Format& format, GroupScales scales, int64_t index) {
  return format.zero_point ? static_cast<float>(scales.zeros[index]) : 0.0f;
}

// Code to value: by table up to eight bits, by shifting otherwise.
inline float value_of(const Format& format, const void* codes, int64_t i) {
  if (format.rounding == Rounding::bf16) return bf16_to_float(static_cast<const uint16_t*>(codes)[i]);
  if (format.rounding == Rounding::fp16) return fp16_to_float(static_cast<const uint16_t*>(codes)[i]);
  return format.values[static_cast<const uint8_t*>(codes)[i]];
}

}  // namespace

void quantize_row(const Format& format, const float* row, int64_t cols, GroupScales to, void* codes) {
  for (int64_t group = 0, at = 0; at < cols; ++group, at += format.group) {
    const int64_t count = std::min(format.group, cols - at);
    const int64_t index = group * kBlockNeurons;
    if (format.scale != ScaleType::none && !to.given) set_scale(format, row + at, count, to, index);
    const float scale = load_scale(format.scale, to.scales, index);
    encode_group(format, row + at, count, scale, zero_of(format, to, index), codes, at);
  }
}

void dequantize_row(const Format& format, const void* codes, const uint8_t* keep, int64_t cols, GroupScales from,
                    float* row) {
  for (int64_t group = 0, at = 0; at < cols; ++group, at += format.group) {
    const int64_t end = std::min(at + format.group, cols);
    const float scale = load_scale(format.scale, from.scales, group * kBlockNeurons);
    const float zero = zero_of(format, from, group * kBlockNeurons);
    for (int64_t i = at; i < end; ++i) row[i] = (value_of(format, codes, i) - zero) * scale;
  }
  if (!keep) return;
  for (int64_t i = 0; i < cols; ++i) row[i] = keep[i] ? row[i] : 0.0f;
}

}  // namespace tilepress::portable
