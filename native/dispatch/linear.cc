#include "dispatch/linear.h"

#include <algorithm>
#include <stdexcept>

#include "dispatch/variants.h"

namespace tilepress {
namespace {

template <class Format>
void run(const Variant<Format>& variant, const LinearProblem& problem, const Activations& x, const Format& format,
         int threads) {
  if (variant.accepts && !variant.accepts(problem.weights, format)) {
    throw std::invalid_argument(std::string(variant.operation) + " wants " + variant.needs);
  }
  variant.run({&problem, 1}, x, format, threads);
}

// `choose` gives the variant of some weights.
template <class Format, class Choose>
bool run_grouped(std::span<const LinearProblem> problems, const Activations& x, const Format& format, int threads,
                 const Choose& choose) {
  const Variant<Format>& variant = choose(problems.front().weights);
  if (!variant.can_share) return false;
  const bool same = std::ranges::all_of(
      problems.subspan(1), [&](const LinearProblem& problem) { return &choose(problem.weights) == &variant; });
  if (!same || !variant.can_share(problems, format)) return false;
  variant.run(problems, x, format, threads);
  return true;
}

}  // namespace

void linear_float(const PackedWeights& weights, const Activations& x, const FloatVariant& variant,
                  const Outputs& outputs, int threads) {
  run(variant, {weights, outputs}, x, x.precision, threads);
}

void linear_integer(const PackedWeights& weights, const Activations& x, const IntegerFormat& rounding,
                    const IntegerVariant& variant, const Outputs& outputs, int threads) {
  run(variant, {weights, outputs}, x, rounding, threads);
}

bool grouped_linear_float(std::span<const LinearProblem> problems, const Activations& x, int threads) {
  return run_grouped(problems, x, x.precision, threads, [&](const PackedWeights& weights) -> const FloatVariant& {
    return float_variant(weights, x.batch, x.precision);
  });
}

bool grouped_linear_integer(std::span<const LinearProblem> problems, const Activations& x,
                            const IntegerFormat& rounding, int threads) {
  return run_grouped(problems, x, rounding, threads, [&](const PackedWeights& weights) -> const IntegerVariant& {
    return integer_variant(weights, x.batch, rounding);
  });
}

}  // namespace tilepress
