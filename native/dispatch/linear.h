// Whole linear layers: activations made ready, blocks of neurons and K-panels of inputs shared out among threads.
#pragma once

#include <span>
#include <string_view>

#include "dispatch/activations.h"

namespace tilepress {

// Where results go: y [batch, rows] in `type`; `bias` [rows] may be null.
struct Outputs {
  uint8_t* y;
  FloatType type;
  const float* bias;
};

// Floats in the type that is asked for: the nearest, overflowing to infinity and keeping NaN, as torch converts.
void store_values(FloatType type, const float* values, int64_t count, uint8_t* to);

// A packed matrix as linear layers take it.
struct PackedWeights {
  const MatrixShape& shape;
  const Format& format;
  const Streams& streams;
  int half_exponent;  // of activations as fp16, such that no sum of a tile overflows; kNoHalves where that cannot serve
};

// The `together` functions multiply the same activations with several matrices, made ready once and as one job for all
// threads. They return false, and may leave anything in the outputs, where the matrices want them otherwise made ready
// or activations cannot be made so.
struct LinearProblem {
  PackedWeights weights;
  Outputs outputs;
};

// y = x · Wᵀ + bias with x rounded to integers; W has an integer format in 8-bit tiles. By one of five operations of
// the registry, with the same result: linear_f32_i8_int or, on a matrix unit, linear_f32_i8_int_tiles, decoded tile by
// tile, and matmul_f32_i8_i8, decoded once for all rows; and for at most 4 bits in groups of 32 the same two in bf16,
// linear_f32_bf16_any_groups and matmul_f32_bf16_bf16_groups. integer_variant says which one fits the machine and the
// batch.
std::string_view integer_variant(const PackedWeights& weights, int64_t batch, const IntegerFormat& rounding);
void linear_integer(const PackedWeights& weights, const Activations& x, const IntegerFormat& rounding,
                    std::string_view variant, const Outputs& outputs, int threads);
bool grouped_linear_integer(std::span<const LinearProblem> problems, const Activations& x,
                            const IntegerFormat& rounding, int threads);

// Floats as integers of so many bits (float_limbs) that weights which are integers lose less by it than by being
// rounded to bf16: integer formats in 8-bit tiles, and 4-bit codes that stand for integers in 16-bit ones. Returns
// false, with nothing done, where the matrices want different segments.
bool limbs_take(const PackedWeights& weights);
bool linear_limbs(std::span<const LinearProblem> problems, const Activations& x, int threads);

// Each of the rows by itself, in float32: those with a value that is not finite or not below kMostNearest, which the
// kernels of integers and of fp16 cannot take. So a row's result never depends on what its neighbours are.
void linear_f32_rows(std::span<const LinearProblem> problems, const Activations& x, std::span<const int64_t> rows,
                     int threads);

// y = x · Wᵀ + bias, in the precision of x, by one of eight operations of the registry:
//   linear_f32_f32_any       weights to float32
//   matmul_f32_f32_f32     the same, decoded once for all rows
//   linear_f32_i8_int        activations to limbs of integers, for weights that are some
//   linear_f32_f16_any       activations to fp16 in groups, for weights that fp16 holds
//   linear_f32_bf16_any      weights and activations to bf16, for one row or a few
//   linear_f32_bf16_any_tiles    the same on a matrix unit, decoded tile by tile, for up to two row panels of rows
//   linear_f32_bf16_any_groups   the same, scales applied to the sums of groups, for one row panel
//   matmul_f32_bf16_bf16   the same, decoded once for all rows with scales multiplied in
// float_variant says which one fits the machine, the batch and the precision: the last four round weights to bf16, so
// float32 takes none of them. In batch-invariant mode it is matmul_f32_f32_f32 for any batch: one sum for each
// output, from the first input to the last, each product added with one rounding.
std::string_view float_variant(const PackedWeights& weights, int64_t batch, FloatType precision);
void linear_float(const PackedWeights& weights, const Activations& x, std::string_view variant, const Outputs& outputs,
                  int threads);
bool grouped_linear_float(std::span<const LinearProblem> problems, const Activations& x, int threads);

}  // namespace tilepress
