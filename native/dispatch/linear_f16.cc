// Layers with weights and activations as fp16.
#include <algorithm>

#include "dispatch/float_loops.h"
#include "dispatch/layers.h"
#include "dispatch/registry.h"

namespace tilepress::layers {

void linear_f32_f16_any(std::span<const LinearProblem> problems, const Activations& x, const FloatType&, int threads) {
  const PackedWeights& first = problems.front().weights;
  HalfRows rows(first.shape, x, first.half_exponent, first.format.half_unit);
  multiply_k_panels(choose<ops::linear_f32_f16_any>(), problems, rows, whole_groups(first, kFloatKPanel), threads);
  f32_rows(problems, x, rows.bad_rows(), threads);
}

bool share_halves(std::span<const LinearProblem> problems, const FloatType& precision) {
  const PackedWeights& first = problems.front().weights;
  return share_floats(problems, precision) && std::ranges::all_of(problems, [&](const LinearProblem& problem) {
           return problem.weights.half_exponent == first.half_exponent &&
                  problem.weights.format.half_unit == first.format.half_unit;
         });
}

}  // namespace tilepress::layers
