// Sparse units × rows of floats. `Unit` multiplies one unit by up to four rows and returns the pointer after its last
// value.
#pragma once

#include "tilepress/kv_sparse.h"

namespace tilepress {
namespace {

// Masks and values of one unit.
struct OneUnit {
  const uint32_t* masks;
  const uint16_t* values;
  int64_t vectors, ahead;
};

[[gnu::always_inline]] inline void fetch(const void* from, int64_t ahead) {
  __builtin_prefetch(static_cast<const char*>(from) + ahead);
}

template <class Unit, FloatType type>
const uint16_t* multiply_rows(const OneUnit& unit, const SparseFactors& by, float* out, int64_t stride) {
  const uint16_t* next = unit.values;
  for (int64_t row = 0; row < by.rows; row += 4) {
    const float* factors = by.values + row * by.stride;
    float* to = out + row * stride;
    switch (by.rows - row) {
      case 1:
        next = Unit::template multiply<type, 1>(unit, factors, by.stride, to, stride);
        break;
      case 2:
        next = Unit::template multiply<type, 2>(unit, factors, by.stride, to, stride);
        break;
      case 3:
        next = Unit::template multiply<type, 3>(unit, factors, by.stride, to, stride);
        break;
      default:
        next = Unit::template multiply<type, 4>(unit, factors, by.stride, to, stride);
    }
  }
  return next;
}

template <class Unit>
void multiply_units(const SparseUnits& units, const SparseFactors& by, float* out, int64_t stride) {
  OneUnit unit = {units.masks, units.values, sparse_vectors(units.depth), units.ahead};
  for (int64_t i = 0; i < units.count; ++i, out += kSparseLanes) {
    for (int64_t line = 0; line < unit.vectors; line += 16) fetch(unit.masks + line, unit.ahead);
    unit.values = units.type == FloatType::bf16 ? multiply_rows<Unit, FloatType::bf16>(unit, by, out, stride)
                                                : multiply_rows<Unit, FloatType::f16>(unit, by, out, stride);
    unit.masks += unit.vectors;
  }
}

}  // namespace
}  // namespace tilepress
