// Python's door to the row limits by which a variant of a linear layer is chosen.
#include "dispatch/row_limits.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <tuple>

#include "bindings/arguments.h"
#include "bindings/bindings.h"

namespace tilepress {
namespace {

// Operation, class of weights, activations, rows.
using Entry = std::tuple<std::string, std::string, std::string, int64_t>;

// Any that we know, this machine's or not.
Isa isa_of(std::string_view name) {
  for (int i = 0; i < kIsas; ++i) {
    if (isa_name(static_cast<Isa>(i)) == name) return static_cast<Isa>(i);
  }
  throw std::invalid_argument(std::string(name) + " is not an instruction set we know");
}

std::vector<Entry> entries_of(const std::vector<RowLimit>& limits) {
  std::vector<Entry> entries;
  for (const RowLimit& limit : limits) {
    entries.emplace_back(limit.operation, limit.weights, limit.activations, limit.rows);
  }
  return entries;
}

std::vector<Entry> py_row_limits(const std::string& isa, bool built_in) {
  const Isa known = isa_of(isa);
  return entries_of(built_in ? built_in_limits(known) : limits_in_force(known));
}

void py_set_row_limits(const std::string& isa, const std::vector<Entry>& entries) {
  std::vector<RowLimit> limits;
  for (const auto& [operation, weights, activations, rows] : entries) {
    limits.push_back({operation, weights, activations, rows});
  }
  set_row_limits(isa_of(isa), limits);
}

}  // namespace

void bind_row_limits(nb::module_& m) {
  using namespace nb::literals;
  m.def("row_limits", &py_row_limits, "isa"_a, "built_in"_a);
  m.def("set_row_limits", &py_set_row_limits, "isa"_a, "limits"_a);
}

}  // namespace tilepress
