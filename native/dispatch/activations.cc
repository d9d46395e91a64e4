#include "dispatch/activations.h"

#include <atomic>
#include <numeric>
#include <stdexcept>

#include "dispatch/parallel.h"
#include "dispatch/registry.h"

namespace tilepress {
namespace {

constexpr int64_t kSpan = 1024;
constexpr int kMostGroup = 128;  // of block floating point
constexpr float kFp16Max = 65504.0f;

Format int8_rows(int64_t cols) {
  Format format = {};
  format.rounding = Rounding::integer;
  format.bits = 8;
  format.low = -128;
  format.high = format.max = 127;
  format.emax = 6;
  format.scale = ScaleType::fp32;
  format.group = cols;
  return format;
}

size_t size(int64_t count) { return static_cast<size_t>(count); }

// Magnitude rounded to FP16, nearest even, saturating: adding a power of two that has no place for more bits than FP16
// keeps makes the addition do the rounding.
float to_fp16(float x) {
  const float magnitude = std::bit_cast<float>(std::bit_cast<uint32_t>(x) & 0x7fffffff);
  const float clamped = magnitude < kFp16Max ? magnitude : kFp16Max;
  const uint32_t exponent = std::bit_cast<uint32_t>(clamped) & 0x7f800000;
  const uint32_t lowest = (127 - 14) << 23;
  const float anchor = std::bit_cast<float>((exponent < lowest ? lowest : exponent) + (13u << 23));
  return (clamped + anchor) - anchor;
}

// What magnitude 1 stands for under the largest of a group's FP16 magnitudes.
float unit_of(float largest, int mantissa) {
  const int field = static_cast<int>(std::bit_cast<uint32_t>(largest) >> 23) - 127 + 15;
  const int power = std::max(field, 1) - 15 - (mantissa - 1);
  return std::bit_cast<float>(static_cast<uint32_t>(power + 127) << 23);
}

}  // namespace

Cut cut_inputs(const MatrixShape& shape, const Format& weights, int64_t group) {
  const int64_t own = weights.group >= shape.cols ? kSpan
                      : weights.group <= kSpan    ? weights.group
                                                  : std::gcd(weights.group, kSpan);
  const int64_t segment = group ? std::gcd(own, group) : own;
  const int64_t step = std::lcm(segment, int64_t{kSpanStep});
  return {segment, (kSpan + step - 1) / step * step};
}

IntegerRows::IntegerRows(const MatrixShape& shape, const Activations& x, const IntegerFormat& format, const Cut& cut,
                         int threads)
    : cut_(cut),
      stride_(shape.padded_cols()),
      segments_((shape.cols + cut.segment - 1) / cut.segment),
      high_(size(x.batch * stride_)),
      low_(size(format.mantissa == 8 ? x.batch * stride_ : 0)),
      sums_(size(x.batch * segments_)),
      units_(size(format.mantissa ? x.batch * segments_ : 0)),
      scales_(size(format.mantissa ? 0 : x.batch)) {
  std::atomic<bool> bad{false};
  parallel_for(x.batch, threads, [&](int, int64_t row) {
    const bool good = format.mantissa ? convert_bfp(shape, x, format, row) : convert_int8(shape, x, row);
    if (!good) bad = true;
  });
  if (bad) throw std::invalid_argument("activations must be finite");
}

bool IntegerRows::convert_int8(const MatrixShape& shape, const Activations& x, int64_t row) {
  static thread_local std::vector<float> floats;
  floats.resize(size(shape.cols));
  load_row({x.data, x.type, nullptr}, row * shape.cols, shape.cols, floats.data());
  if (count_bad(floats.data(), shape.cols)) return false;
  int8_t* to = high_.data() + row * stride_;
  choose(kQuantize)(int8_rows(shape.cols), floats.data(), shape.cols, {&scales_[size(row)], nullptr, false}, to);
  for (int64_t segment = 0; segment < segments_; ++segment) {
    const int64_t begin = segment * cut_.segment, end = std::min(begin + cut_.segment, shape.cols);
    sums_[size(row * segments_ + segment)] = std::accumulate(to + begin, to + end, int32_t{0});
  }
  return true;
}

bool IntegerRows::convert_bfp(const MatrixShape& shape, const Activations& x, const IntegerFormat& format,
                              int64_t row) {
  float floats[kMostGroup], halves[kMostGroup];
  int32_t values[kMostGroup];
  for (int64_t at = 0; at < shape.cols; at += format.group) {
    const int64_t count = std::min(format.group, shape.cols - at);
    load_row({x.data, x.type, nullptr}, row * shape.cols + at, count, floats);
    if (count_bad(floats, count)) return false;
    float largest = 0;
    for (int64_t i = 0; i < count; ++i) halves[i] = to_fp16(floats[i]);
    for (int64_t i = 0; i < count; ++i) largest = largest < halves[i] ? halves[i] : largest;
    const float unit = unit_of(largest, format.mantissa), per_unit = 1.0f / unit;
    for (int64_t i = 0; i < count; ++i) {
      const int32_t magnitude = static_cast<int32_t>(halves[i] * per_unit);
      values[i] = floats[i] < 0 ? -magnitude : magnitude;
    }
    for (int64_t i = 0; i < count; i += cut_.segment) {
      units_[size(row * segments_ + (at + i) / cut_.segment)] = unit;
    }
    store_group(values, at, count, row, format.mantissa);
  }
  return true;
}

void IntegerRows::store_group(const int32_t* values, int64_t at, int64_t count, int64_t row, int mantissa) {
  int8_t* high = high_.data() + row * stride_ + at;
  for (int64_t i = 0; i < count; i += cut_.segment) {
    const int64_t end = std::min(i + cut_.segment, count);
    sums_[size(row * segments_ + (at + i) / cut_.segment)] = std::accumulate(values + i, values + end, int32_t{0});
  }
  if (mantissa < 8) {
    for (int64_t i = 0; i < count; ++i) high[i] = static_cast<int8_t>(values[i]);
    return;
  }
  int8_t* low = low_.data() + row * stride_ + at;
  for (int64_t i = 0; i < count; ++i) high[i] = static_cast<int8_t>(values[i] >> 1);
  for (int64_t i = 0; i < count; ++i) low[i] = static_cast<int8_t>(values[i] & 1);
}

IntegerActivations IntegerRows::view(int64_t row, int64_t batch, int64_t first) const {
  const int64_t at = row * stride_ + first, segment = row * segments_ + first / cut_.segment;
  return {high_.data() + at,
          low_.empty() ? nullptr : low_.data() + at,
          stride_,
          batch,
          cut_.segment,
          sums_.data() + segment,
          units_.empty() ? nullptr : units_.data() + segment,
          segments_};
}

}  // namespace tilepress
