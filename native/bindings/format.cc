// Bindings of weight formats.
#include "bindings/format.h"

#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <span>
#include <string>

#include "bindings/arguments.h"
#include "bindings/bindings.h"
#include "dispatch/matrix.h"

namespace tilepress {
namespace {

void set_tables(OwnedFormat& owned, ConstFloats thresholds, ConstBytes codes, ConstFloats values) {
  require(thresholds.size() < 256, "at most 255 thresholds");
  int steps = 0;
  while ((size_t{1} << steps) < thresholds.size() + 1) ++steps;
  owned.thresholds.assign(thresholds.data(), thresholds.data() + thresholds.size());
  owned.thresholds.resize((size_t{1} << steps) - 1, std::numeric_limits<float>::infinity());
  owned.codes.assign(codes.data(), codes.data() + codes.size());
  require(owned.codes.size() == thresholds.size() + 1 || owned.codes.empty(), "one code more than thresholds");
  owned.codes.resize(size_t{1} << steps, owned.codes.empty() ? uint8_t{0} : owned.codes.back());
  owned.values.assign(values.data(), values.data() + values.size());
  owned.values.resize(256, 0.0f);  // so that no byte can point past the end
  for (float value : owned.values) owned.bf16s.push_back(round_to_bf16(value));
  owned.format.search_steps = steps;
  owned.format.in_bf16 =
      std::ranges::all_of(owned.values, [](float value) { return std::bit_cast<uint32_t>(value) % (1 << 16) == 0; });
}

// Values of 4-bit codes as int8 multiples of a unit, the largest power of two for which all are integers; nothing if
// there is none.
void set_integers(OwnedFormat& owned) {
  const std::span<const float> values(owned.values.data(), 16);
  for (float unit = 1; unit >= 0x1p-7f; unit /= 2) {
    const auto is_small_integer = [&](float value) {
      const float units = value / unit;
      return std::abs(units) < 128 && units == std::trunc(units);
    };
    if (!std::ranges::all_of(values, is_small_integer)) continue;
    for (float value : values) owned.integers.push_back(static_cast<int8_t>(value / unit));
    owned.format.unit = unit;
    return;
  }
}

// Values of at most 64 codes as fp16, scaled so that the largest is in [1, 2). Nothing if fp16 would lose bits of a
// small one, or if 6-bit codes have no zero: sparse tiles need one.
void set_halves(OwnedFormat& owned) {
  const std::span<const float> values(owned.values.data(), 64);
  float largest = 0, smallest = std::numeric_limits<float>::infinity();
  for (float value : values) {
    if (!is_finite(value)) return;
    largest = std::max(largest, std::abs(value));
    if (value != 0) smallest = std::min(smallest, std::abs(value));
  }
  const bool has_zero = owned.format.bits < 6 || std::ranges::find(values, 0.0f) != values.end();
  if (largest == 0 || smallest < largest * 0x1p-13f || !has_zero) return;
  const float unit = std::ldexp(1.0f, std::ilogb(largest));
  for (float value : values) owned.halves.push_back(round_to_fp16(value / unit));
  owned.format.half_unit = unit;
}

SharedFormat make_format(const std::string& rounding, int bits, float low, float high, float max, int emax,
                         bool zero_point, const std::string& scale, int64_t group, int mantissa_bits, int min_exponent,
                         ConstFloats thresholds, ConstBytes codes, ConstFloats values) {
  const auto shared = std::make_shared<OwnedFormat>();
  OwnedFormat& owned = *shared;
  Format& format = owned.format;
  format.rounding = pick<Rounding>(rounding, {{"integer", Rounding::integer},
                                              {"minifloat", Rounding::minifloat},
                                              {"table", Rounding::table},
                                              {"bf16", Rounding::bf16},
                                              {"fp16", Rounding::fp16}});
  format.scale = pick<ScaleType>(scale, {{"none", ScaleType::none},
                                         {"e8m0", ScaleType::e8m0},
                                         {"bf16", ScaleType::bf16},
                                         {"fp16", ScaleType::fp16},
                                         {"fp32", ScaleType::fp32}});
  const bool half = format.rounding == Rounding::bf16 || format.rounding == Rounding::fp16;
  require(mantissa_bits >= 0 && mantissa_bits <= 7 && min_exponent >= -126 && min_exponent <= 0, "not a minifloat");
  require(half ? bits == 16 : bits >= 1 && bits <= 8, "a code has 1 to 8 bits, or 16");
  require(group >= 1, "a group has at least one input");
  require(!zero_point || (format.rounding == Rounding::integer && low == 0), "zero points are of unsigned integers");
  format.bits = bits;
  format.low = low;
  format.high = high;
  format.max = max;
  format.emax = emax;
  format.zero_point = zero_point;
  format.group = group;
  format.mantissa_bits = mantissa_bits;
  format.min_exponent = min_exponent;
  set_tables(owned, thresholds, codes, values);
  const bool table = format.rounding == Rounding::table || format.rounding == Rounding::minifloat;
  if (table && bits == 4 && format.scale != ScaleType::none) set_integers(owned);
  if (table && bits <= 6) set_halves(owned);
  if (has_half_range(format)) format.half_unit = format.scale == ScaleType::none ? 1.0f : 0.0f;
  if (format.rounding == Rounding::minifloat && bits == 8 && mantissa_bits == 3) format.half_unit = 256.0f;
  format.thresholds = owned.thresholds.data();
  format.codes = owned.codes.data();
  format.values = owned.values.data();
  format.bf16s = owned.bf16s.data();
  format.integers = owned.integers.empty() ? nullptr : owned.integers.data();
  format.halves = owned.halves.empty() ? nullptr : owned.halves.data();
  return shared;
}

}  // namespace

void bind_formats(nb::module_& m) {
  using namespace nb::literals;
  nb::class_<OwnedFormat>(m, "Format")
      .def(nb::new_(&make_format), nb::kw_only(), "rounding"_a, "bits"_a, "low"_a, "high"_a, "max"_a, "emax"_a,
           "zero_point"_a, "scale"_a, "group"_a, "mantissa_bits"_a, "min_exponent"_a, "thresholds"_a, "codes"_a,
           "values"_a);
}

}  // namespace tilepress
