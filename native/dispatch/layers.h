// One function per variant: a whole layer by that operation. variants.cc lists them.
#pragma once

#include "dispatch/linear.h"

namespace tilepress::layers {

using FloatLayer = void(std::span<const LinearProblem> problems, const Activations& x, const FloatType& precision,
                        int threads);
using IntegerLayer = void(std::span<const LinearProblem> problems, const Activations& x, const IntegerFormat& rounding,
                          int threads);

// These take several problems that share their activations.
FloatLayer linear_f32_f32_any, linear_f32_f16_any, linear_f32_bf16_any, linear_f32_i8_int;
IntegerLayer linear_f32_i8_int;

// These take one problem.
FloatLayer matmul_f32_f32_f32, matmul_f32_bf16_bf16, linear_f32_bf16_any_tiles, linear_f32_bf16_any_groups;
IntegerLayer matmul_f32_i8_i8, linear_f32_i8_int_tiles, linear_f32_bf16_any_groups, matmul_f32_bf16_bf16_groups;

// Whether the problems can share their activations: inputs padded and divided alike; also one exponent and unit of
// fp16; also one unit of the weights' integers.
bool share_floats(std::span<const LinearProblem> problems, const FloatType& precision);
bool share_halves(std::span<const LinearProblem> problems, const FloatType& precision);
bool share_limbs(std::span<const LinearProblem> problems, const FloatType& precision);
bool share_integers(std::span<const LinearProblem> problems, const IntegerFormat& rounding);

// Some rows, each by itself, in float32: those with a value that is not finite or not below kMostNearest, which kernels
// of integers and of fp16 cannot take. So a row's result never depends on its neighbours.
void f32_rows(std::span<const LinearProblem> problems, const Activations& x, std::span<const int64_t> rows,
              int threads);

}  // namespace tilepress::layers
