// Whole linear layers: activations prepared, blocks of neurons and K-panels of inputs shared out among threads.
#pragma once

#include <span>
#include <string_view>

#include "dispatch/activations.h"

namespace tilepress {

// Where results go: y [batch, rows] in `type`; `bias` [rows] may be null. `stride`: values from one row of y to the
// next; 0: there are none between.
struct Outputs {
  uint8_t* y;
  FloatType type;
  const float* bias;
  int64_t stride = 0;

  int64_t row_bytes(const MatrixShape& shape) const { return (stride ? stride : shape.rows) * bytes_of(type); }
};

// Floats in the given type: the nearest, overflowing to infinity and keeping NaN, as torch converts.
void store_values(FloatType type, const float* values, int64_t count, uint8_t* to);

// A packed matrix as linear layers take it.
struct PackedWeights {
  const MatrixShape& shape;
  const Format& format;
  const Streams& streams;
  int half_exponent;  // of activations as fp16, such that no sum of a tile overflows; kNoHalves where that cannot serve
};

// One matrix and its output.
struct LinearProblem {
  PackedWeights weights;
  Outputs outputs;
};

// A layer can be computed by several operations; variants.h declares them.
template <class Format>
struct Variant;
using FloatVariant = Variant<FloatType>;
using IntegerVariant = Variant<IntegerFormat>;

// y = x · Wᵀ + bias, in the precision of x. Variants that round weights to bf16 are no choice for float32. In
// batch-invariant mode the choice is matmul_f32_f32_f32 for any batch: one sum for each output, from the first input to
// the last, each product added with one rounding.
const FloatVariant& float_variant(const PackedWeights& weights, int64_t batch, FloatType precision);
void linear_float(const PackedWeights& weights, const Activations& x, const FloatVariant& variant,
                  const Outputs& outputs, int threads);

// y = x · Wᵀ + bias with x rounded to integers; W has an integer format in 8-bit tiles. All variants give the same.
const IntegerVariant& integer_variant(const PackedWeights& weights, int64_t batch, const IntegerFormat& rounding);
void linear_integer(const PackedWeights& weights, const Activations& x, const IntegerFormat& rounding,
                    const IntegerVariant& variant, const Outputs& outputs, int threads);

// The variant of that operation; std::invalid_argument, with those that there are, where there is none.
const FloatVariant& float_variant(std::string_view operation);
const IntegerVariant& integer_variant(std::string_view operation);

// The same activations times several matrices, prepared once and as one job for all threads. False, with nothing done,
// where the matrices need different variants, or activations prepared differently.
bool grouped_linear_float(std::span<const LinearProblem> problems, const Activations& x, int threads);
bool grouped_linear_integer(std::span<const LinearProblem> problems, const Activations& x,
                            const IntegerFormat& rounding, int threads);

}  // namespace tilepress
