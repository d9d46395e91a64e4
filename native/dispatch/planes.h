// Tensors as bit planes: loops over groups, with threads.
#pragma once

#include "dispatch/matrix.h"

namespace tilepress {

// A tensor [rows, cols] in groups of kPlaneValues along the row; the last group of a row may be partial.
struct PlanesShape {
  int64_t rows, cols;
  int mantissa;

  int64_t row_groups() const { return (cols + kPlaneValues - 1) / kPlaneValues; }
  int64_t groups() const { return rows * row_groups(); }
  int64_t group_bytes() const { return (1 + mantissa) * kPlaneBytes; }
  int64_t plane_bytes() const { return groups() * group_bytes(); }
  int64_t field_bytes() const { return (groups() * 5 + 7) / 8; }
};

// Planes, group after group, and the groups' exponent fields as a stream of five bits each.
struct Planes {
  uint8_t* planes;
  uint8_t* fields;
};

// Numbers of values: `all` that were saturated (infinities and values too large for fp16 to ±65504, NaN to 0), and
// those among them that were not finite.
struct Saturated {
  int64_t all, not_finite;
};
Saturated pack_planes(const PlanesShape& shape, const uint8_t* values, FloatType type, const Planes& to, int threads);

// Values [rows, cols] as fp16. Returns the number of fields above kMaxField; if it is not 0, the planes are corrupt.
int64_t unpack_planes(const PlanesShape& shape, const Planes& from, uint16_t* halves, int threads);

}  // namespace tilepress
