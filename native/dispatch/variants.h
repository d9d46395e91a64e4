// The variants of a linear layer: several operations that compute the same, with what each accepts and how it runs.
#pragma once

#include "dispatch/linear.h"
#include "dispatch/row_limits.h"

namespace tilepress {

// Format is FloatType, the precision of float activations, or IntegerFormat.
template <class Format>
struct Variant {
  std::string_view operation;
  // Whether it computes the layer; `needs` says what it takes. Null: every layer.
  bool (*accepts)(const PackedWeights& weights, const Format& format);
  const char* needs;
  // Whether it may be chosen here, where it accepts: there are instructions for it, and it is precise enough.
  bool (*is_candidate)(const PackedWeights& weights, const Format& format);
  void (*run)(std::span<const LinearProblem> problems, const Activations& x, const Format& format, int threads);
  // Whether activations prepared once serve all problems. Null: it runs one problem at a time.
  bool (*can_share)(std::span<const LinearProblem> problems, const Format& format);
  int limit = limit_of(operation);  // its index among the row limits
};

// In the order in which they are tried: the first candidate whose row limit the batch does not exceed is chosen, or the
// last candidate.
std::span<const FloatVariant> float_variants();
std::span<const IntegerVariant> integer_variants();

WeightClass class_of(const PackedWeights& weights);

// Candidates for these weights, in that order.
std::vector<std::string_view> float_candidates(const PackedWeights& weights, FloatType precision);
std::vector<std::string_view> integer_candidates(const PackedWeights& weights, const IntegerFormat& rounding);

}  // namespace tilepress
