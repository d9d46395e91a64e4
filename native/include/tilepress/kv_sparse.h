// Keys and values as bf16 or fp16 halves without the smallest ones: their byte layout, and the kernel on them. No other
// file knows the layout.
//
// A unit is 16 lanes of values that are summed over, an even number in each lane. A unit of keys is 16 tokens by all
// channels, a unit of values 16 channels by 32 tokens. It is a sequence of vectors of 32 values, two of each lane, lane
// after lane, as dot products take them. Each vector has a 32-bit mask, lowest bit first; values whose bit is set are
// stored, vector after vector and unit after unit.
//
// A page is 32 tokens of a head: two units of keys, and channels / 16 of values.
#pragma once

#include <cstdint>

#include "tilepress/format.h"
#include "tilepress/kernel.h"

namespace tilepress {

inline constexpr int kSparseLanes = 16, kSparseVector = 32;
inline constexpr int64_t kSparseTokens = 32;  // of a page
inline constexpr int64_t kSparseSlack = 64;   // bytes that may be read past the last value

// Vectors of a unit with `depth` values in each lane.
constexpr int64_t sparse_vectors(int64_t depth) { return depth / 2; }

// Index of a value in its dense unit.
constexpr int64_t sparse_offset(int64_t lane, int64_t depth) {
  return depth / 2 * kSparseVector + lane * 2 + (depth & 1);
}

// Consecutive units of halves, bf16 or fp16.
struct SparseUnits {
  const uint32_t* masks;
  const uint16_t* values;
  FloatType type;
  int64_t count, depth;
  int64_t ahead;  // prefetch distance in bytes, about as far as the units of the next page
};

// What lanes are multiplied with: value d of row r is at r * stride + d.
struct SparseFactors {
  const float* values;
  int64_t rows, stride;
};

// out [r * stride + 16 * unit + lane] += Σ over d: value d of the lane * factor d of row r.
TILEPRESS_OPERATION(matmul_f32_f32_sparse, void(const SparseUnits&, const SparseFactors&, float* out, int64_t stride));

}  // namespace tilepress
