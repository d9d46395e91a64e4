// Tensors as bit planes: the loops over groups, with their threads.
#pragma once

#include "dispatch/matrix.h"

namespace tilepress {

// [rows, cols] in groups of kPlaneValues along a row, the last of a row perhaps not full.
struct PlanesShape {
  int64_t rows, cols;
  int mantissa;

  int64_t row_groups() const { return (cols + kPlaneValues - 1) / kPlaneValues; }
  int64_t groups() const { return rows * row_groups(); }
  int64_t group_bytes() const { return (1 + mantissa) * kPlaneBytes; }
  int64_t plane_bytes() const { return groups() * group_bytes(); }
  int64_t field_bytes() const { return (groups() * 5 + 7) / 8; }
};

// Planes, group after group, and their fields as a stream of five bits each.
struct Planes {
  uint8_t* planes;
  uint8_t* fields;
};

// How many values were not finite, and how many of them or of those too large for fp16 were saturated: infinities and
// large values to ±65504, NaN to 0.
struct Saturated {
  int64_t all, not_finite;
};
Saturated pack_planes(const PlanesShape& shape, const uint8_t* values, FloatType type, const Planes& to, int threads);

// Values [rows, cols] as fp16. Returns how many fields are above kMaxField: if any, the planes are damaged.
int64_t unpack_planes(const PlanesShape& shape, const Planes& from, uint16_t* halves, int threads);

}  // namespace tilepress
