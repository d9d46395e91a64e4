// Up to how many rows each variant of a linear layer is preferred: the data by which a variant is chosen.
//
// A limit belongs to an operation, a class of weights, a kind of activations and an instruction set. The built-in
// limits were timed on two machines (docs/lab); `tilepress doctor --tune` measures those of another.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dispatch/isa.h"
#include "tilepress/linear.h"

namespace tilepress {

// Integers of at most 4 bits, and with a zero point; codes looked up as integers (mxfp4); integers of more than 4 bits;
// values that fp16 holds; all others.
enum class WeightKind { integer, zero_point, lookup, wide_integer, fp16, other };
inline constexpr int kWeightKinds = 6;

struct WeightClass {
  WeightKind kind;
  bool sparse;
};

// Floats by their precision; integers by how many int8 limbs they have.
enum class ActivationKind { f32, bf16, f16, one_limb, two_limbs };
inline constexpr int kActivationKinds = 5;

// Operations that pay for a few rows only. The others decode the weights once, for any number of rows.
inline constexpr std::array<std::string_view, 7> kLimitedOperations = {
    ops::linear_f32_i8_int::kName,         ops::linear_f32_f16_any::kName,         ops::linear_f32_bf16_any::kName,
    ops::linear_f32_bf16_any_tiles::kName, ops::linear_f32_bf16_any_groups::kName, ops::linear_f32_i8_int_tiles::kName,
    ops::linear_f32_f32_any::kName,
};
inline constexpr int kLimits = static_cast<int>(kLimitedOperations.size());
inline constexpr int kNoLimit = -1;

// Index of the operation's limit; kNoLimit where it has none.
constexpr int limit_of(std::string_view operation) {
  for (int i = 0; i < kLimits; ++i) {
    if (kLimitedOperations[static_cast<size_t>(i)] == operation) return i;
  }
  return kNoLimit;
}

// Limits of all operations for one class of weights and kind of activations: 0 is never.
using Limits = std::array<std::atomic<int16_t>, kLimits>;
inline constexpr int kMostLimitRows = 1024;

// Those in force, of the instruction set in force.
const Limits& row_limits(WeightClass weights, ActivationKind activations);

struct RowLimit {
  std::string operation, weights, activations;
  int64_t rows;
};

// "dense integer", "sparse fp16".
std::string class_name(WeightClass weights);

// All limits of an instruction set, which need not be this machine's.
std::vector<RowLimit> built_in_limits(Isa isa);
std::vector<RowLimit> limits_in_force(Isa isa);

// Replaces the limits of an instruction set: built-in, but for these. Throws std::invalid_argument, with nothing
// changed, where one names no operation, weights or activations that have a limit, or is not 0 to kMostLimitRows.
void set_row_limits(Isa isa, std::span<const RowLimit> limits);

}  // namespace tilepress
