// Bindings of bit planes.
#include "dispatch/planes.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>

#include <tuple>

#include "bindings/arguments.h"
#include "bindings/bindings.h"

namespace tilepress {
namespace {

PlanesShape check_planes(int64_t rows, int64_t cols, int mantissa, Bytes planes, Bytes fields) {
  constexpr int64_t kLimit = int64_t{1} << 40;
  require(rows >= 0 && cols >= 0 && rows <= kLimit && cols <= kLimit, "sides must not be negative");
  require(cols == 0 || rows <= kLimit / cols, "the tensor is too large");
  require(mantissa >= 1 && mantissa <= kMaxMantissa, "a mantissa has 1 to 16 bits");
  const PlanesShape shape = {rows, cols, mantissa};
  require_size(planes, shape.plane_bytes(), "planes");
  require_size(fields, shape.field_bytes(), "exponents");
  return shape;
}

std::tuple<int64_t, int64_t> pack(int64_t rows, int64_t cols, int mantissa, ConstBytes values, const std::string& type,
                                  Bytes planes, Bytes exponents, int threads) {
  const PlanesShape shape = check_planes(rows, cols, mantissa, planes, exponents);
  const FloatType float_type = float_type_of(type);
  require_size(values, rows * cols * (float_type == FloatType::f32 ? 4 : 2), "values");
  const int workers = check_threads(threads);
  nb::gil_scoped_release release;
  const Saturated saturated = pack_planes(shape, values.data(), float_type, {planes.data(), exponents.data()}, workers);
  return {saturated.all, saturated.not_finite};
}

int64_t unpack(int64_t rows, int64_t cols, int mantissa, Bytes planes, Bytes exponents, Bytes halves, int threads) {
  const PlanesShape shape = check_planes(rows, cols, mantissa, planes, exponents);
  require_size(halves, rows * cols * 2, "values");
  const int workers = check_threads(threads);
  nb::gil_scoped_release release;
  return unpack_planes(shape, {planes.data(), exponents.data()}, reinterpret_cast<uint16_t*>(halves.data()), workers);
}

}  // namespace

void bind_planes(nb::module_& m) {
  using namespace nb::literals;
  m.def("pack_planes", &pack, "rows"_a, "cols"_a, "mantissa"_a, no_convert("values"), "type"_a, no_convert("planes"),
        no_convert("exponents"), "threads"_a);
  m.def("unpack_planes", &unpack, "rows"_a, "cols"_a, "mantissa"_a, no_convert("planes"), no_convert("exponents"),
        no_convert("values"), "threads"_a);
}

}  // namespace tilepress
