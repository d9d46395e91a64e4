#include "dispatch/variants.h"

#include <algorithm>
#include <stdexcept>

#include "dispatch/invariance.h"
#include "dispatch/layers.h"
#include "dispatch/registry.h"

namespace tilepress {
namespace {

// Float activations.

// Weights that are integers: such formats in 8-bit tiles, and 4-bit codes that stand for integers in 16-bit ones.
// Activations as limbs (float_limbs) then lose less than by being rounded to bf16.
bool integer_weights(const PackedWeights& weights, const FloatType&) {
  const int operand_bits = weights.format.integers ? 16 : 8;
  return (weights.format.integers || weights.format.rounding == Rounding::integer) &&
         weights.shape.operand_bits == operand_bits;
}

// Groups are whole tiles.
bool fp16_weights(const PackedWeights& weights, const FloatType&) {
  const bool whole_tiles = weights.shape.groups <= 1 || weights.format.group % tile_inputs(16) == 0;
  return weights.half_exponent != kNoHalves && weights.shape.operand_bits == 16 && whole_tiles;
}

// Groups are whole tiles, so that their scales can wait for a group's sum, and codes small, so that this saves much.
bool short_codes_in_groups(const PackedWeights& weights, const FloatType&) {
  const Format& format = weights.format;
  return weights.shape.groups > 1 && format.group % tile_inputs(16) == 0 && format.bits <= (format.zero_point ? 4 : 6);
}

bool anywhere(const PackedWeights&, const FloatType&) { return true; }

// Sums of fp16 are not what is expected of float32.
bool has_fp16_products(const PackedWeights&, const FloatType& precision) {
  return precision != FloatType::f32 && find<ops::linear_f32_f16_any>();
}

bool has_bf16_products(const PackedWeights&, const FloatType& precision) {
  return precision != FloatType::f32 && find<ops::linear_f32_bf16_any>();
}

bool lacks_bf16_products(const PackedWeights& weights, const FloatType& precision) {
  return !has_bf16_products(weights, precision);
}

bool has_bf16_unit(const PackedWeights& weights, const FloatType& precision) {
  return has_bf16_products(weights, precision) && on_matrix_unit<ops::linear_f32_bf16_any_tiles>();
}

// Scales that are powers of two are as well multiplied in.
bool groups_pay(const PackedWeights& weights, const FloatType& precision) {
  return has_bf16_unit(weights, precision) && weights.format.scale != ScaleType::e8m0;
}

// Whether the matrix unit's own decoder takes the weights: not dense fields that must be unpacked first, nor zero
// points of many bits. (It may still refuse a table that has no zero.)
bool tiles_pay(const PackedWeights& weights, const FloatType& precision) {
  const int bits = weights.format.bits;
  return has_bf16_unit(weights, precision) && (weights.shape.sparse || bits == 4 || bits >= 8) &&
         !(weights.format.zero_point && bits > 4);
}

constexpr FloatVariant kFloatVariants[] = {
    {ops::linear_f32_i8_int::kName, integer_weights,
     "integer weights in 8-bit tiles, or 4-bit tables of integers in 16-bit ones", anywhere, layers::linear_f32_i8_int,
     layers::share_limbs},
    {ops::linear_f32_f16_any::kName, fp16_weights,
     "weights that fp16 holds, in 16-bit tiles and in groups of a multiple of 32 inputs", has_fp16_products,
     layers::linear_f32_f16_any, layers::share_halves},
    {ops::linear_f32_bf16_any::kName, nullptr, nullptr, has_bf16_products, layers::linear_f32_bf16_any,
     layers::share_floats},
    {ops::linear_f32_bf16_any_groups::kName, short_codes_in_groups,
     "codes of at most 6 bits, 4 with a zero point, in groups of a multiple of 32 inputs", groups_pay,
     layers::linear_f32_bf16_any_groups, nullptr},
    {ops::linear_f32_bf16_any_tiles::kName, nullptr, nullptr, tiles_pay, layers::linear_f32_bf16_any_tiles, nullptr},
    {ops::linear_f32_f32_any::kName, nullptr, nullptr, lacks_bf16_products, layers::linear_f32_f32_any,
     layers::share_floats},
    {ops::matmul_f32_f32_f32::kName, nullptr, nullptr, lacks_bf16_products, layers::matmul_f32_f32_f32, nullptr},
    {ops::matmul_f32_bf16_bf16::kName, nullptr, nullptr, has_bf16_products, layers::matmul_f32_bf16_bf16, nullptr},
};

// Integer activations.

int64_t segment_of(const PackedWeights& weights, const IntegerFormat& rounding) {
  return split_inputs(weights.shape, weights.format, rounding.group).segment;
}

// bf16 holds nine bits: a segment is one tile of bf16, and codes are so few that they are looked up. The largest sum,
// in steps of a zero point 255 · 255 · 32, is exact.
bool exact_in_bf16(const PackedWeights& weights, const IntegerFormat& rounding) {
  return segment_of(weights, rounding) == tile_inputs(16) && weights.format.bits <= 4 && rounding.mantissa <= 8;
}

// The matrix unit's kernels take two limbs at most.
bool fits_int8_tiles(const PackedWeights& weights, const IntegerFormat& rounding) {
  return tiles_accept(segment_of(weights, rounding)) && limbs_of(rounding.mantissa) <= 2;
}

bool anywhere(const PackedWeights&, const IntegerFormat&) { return true; }

bool nine_bits_pay(const PackedWeights& weights, const IntegerFormat& rounding) {
  return on_matrix_unit<ops::linear_f32_i8_int_tiles>() && rounding.mantissa == 8 &&
         fits_int8_tiles(weights, rounding) && exact_in_bf16(weights, rounding);
}

bool int8_tiles_pay(const PackedWeights& weights, const IntegerFormat& rounding) {
  return on_matrix_unit<ops::linear_f32_i8_int_tiles>() && !nine_bits_pay(weights, rounding);
}

constexpr const char* kNeedsInt8Tiles = "groups of 32 inputs or a multiple of 64, and activations of at most 14 bits";
constexpr const char* kNeedsBf16 = "codes of at most 4 bits in groups of 32 inputs, and activations of at most 8";

constexpr IntegerVariant kIntegerVariants[] = {
    {ops::linear_f32_i8_int::kName, nullptr, nullptr, anywhere, layers::linear_f32_i8_int, layers::share_integers},
    {ops::linear_f32_i8_int_tiles::kName, fits_int8_tiles, kNeedsInt8Tiles, int8_tiles_pay,
     layers::linear_f32_i8_int_tiles, nullptr},
    {ops::linear_f32_bf16_any_groups::kName, exact_in_bf16, kNeedsBf16, nine_bits_pay,
     layers::linear_f32_bf16_any_groups, nullptr},
    {ops::matmul_f32_i8_i8::kName, fits_int8_tiles, kNeedsInt8Tiles, int8_tiles_pay, layers::matmul_f32_i8_i8, nullptr},
    {ops::matmul_f32_bf16_bf16_groups::kName, exact_in_bf16, kNeedsBf16, nine_bits_pay,
     layers::matmul_f32_bf16_bf16_groups, nullptr},
};

WeightKind integer_kind(const Format& format) {
  if (format.integers) return WeightKind::lookup;
  if (format.bits > 4) return WeightKind::wide_integer;
  return format.zero_point ? WeightKind::zero_point : WeightKind::integer;
}

ActivationKind kind_of(FloatType precision) {
  return precision == FloatType::f32    ? ActivationKind::f32
         : precision == FloatType::bf16 ? ActivationKind::bf16
                                        : ActivationKind::f16;
}

// Three limbs have one candidate only.
ActivationKind kind_of(const IntegerFormat& rounding) {
  return limbs_of(rounding.mantissa) == 1 ? ActivationKind::one_limb : ActivationKind::two_limbs;
}

template <class Format>
bool is_candidate(const Variant<Format>& variant, const PackedWeights& weights, const Format& format) {
  return variant.is_candidate(weights, format) && (!variant.accepts || variant.accepts(weights, format));
}

template <class Format>
const Variant<Format>& select(std::span<const Variant<Format>> variants, const PackedWeights& weights, int64_t batch,
                              const Format& format) {
  const Limits& limits = row_limits(class_of(weights), kind_of(format));
  const Variant<Format>* last = nullptr;
  for (const Variant<Format>& variant : variants) {
    if (!is_candidate(variant, weights, format)) continue;
    last = &variant;
    const int limit = variant.limit;
    if (limit != kNoLimit && batch <= limits[static_cast<size_t>(limit)].load(std::memory_order_relaxed)) break;
  }
  return *last;
}

template <class Format>
std::vector<std::string_view> candidates(std::span<const Variant<Format>> variants, const PackedWeights& weights,
                                         const Format& format) {
  std::vector<std::string_view> names;
  for (const Variant<Format>& variant : variants) {
    if (is_candidate(variant, weights, format)) names.push_back(variant.operation);
  }
  return names;
}

template <class Format>
const Variant<Format>& named(std::span<const Variant<Format>> variants, std::string_view operation,
                             const char* activations) {
  const auto match = std::ranges::find(variants, operation, &Variant<Format>::operation);
  if (match != variants.end()) return *match;
  std::string known;
  for (const Variant<Format>& variant : variants) {
    known += (known.empty() ? "" : ", ") + std::string(variant.operation);
  }
  throw std::invalid_argument(activations + (" activations are multiplied by " + known) + "; not " +
                              std::string(operation));
}

}  // namespace

std::span<const FloatVariant> float_variants() { return kFloatVariants; }
std::span<const IntegerVariant> integer_variants() { return kIntegerVariants; }

WeightClass class_of(const PackedWeights& weights) {
  const FloatType any = FloatType::f32;
  const WeightKind kind = integer_weights(weights, any) ? integer_kind(weights.format)
                          : fp16_weights(weights, any)  ? WeightKind::fp16
                                                        : WeightKind::other;
  return {kind, weights.shape.sparse};
}

const FloatVariant& float_variant(const PackedWeights& weights, int64_t batch, FloatType precision) {
  if (batch_invariant()) return float_variant(ops::matmul_f32_f32_f32::kName);
  return select(float_variants(), weights, batch, precision);
}

const IntegerVariant& integer_variant(const PackedWeights& weights, int64_t batch, const IntegerFormat& rounding) {
  return select(integer_variants(), weights, batch, rounding);
}

const FloatVariant& float_variant(std::string_view operation) { return named(float_variants(), operation, "float"); }

const IntegerVariant& integer_variant(std::string_view operation) {
  return named(integer_variants(), operation, "integer");
}

std::vector<std::string_view> float_candidates(const PackedWeights& weights, FloatType precision) {
  return candidates(float_variants(), weights, precision);
}

std::vector<std::string_view> integer_candidates(const PackedWeights& weights, const IntegerFormat& rounding) {
  return candidates(integer_variants(), weights, rounding);
}

}  // namespace tilepress
