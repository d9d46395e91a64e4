// The Python module. Bindings check every argument, release the GIL and forward.
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <tuple>

#include "bindings/arguments.h"
#include "bindings/bindings.h"
#include "dispatch/invariance.h"
#include "dispatch/isa.h"
#include "dispatch/matrix.h"
#include "dispatch/parallel.h"
#include "dispatch/registry.h"
#include "dispatch/tile_rates.h"

namespace tilepress {
namespace {

std::tuple<double, uint64_t> py_read_bandwidth(ConstBytes data, bool in_parts, int threads) {
  const int workers = check_threads(threads);
  uint64_t checksum = 0;
  nb::gil_scoped_release release;
  const double rate = read_bandwidth(data.data(), static_cast<int64_t>(data.size()), in_parts, workers, &checksum);
  return {rate, checksum};
}

std::vector<double> py_tile_rates(const std::vector<int>& cpus, double seconds) {
  require(!cpus.empty() && cpus.size() <= static_cast<size_t>(kMostCpus), "1 to 1024 CPUs can be measured at once");
  require(seconds > 0 && seconds <= kLongestMeasurement,
          "a measurement takes more than no time, and one second at most");
  nb::gil_scoped_release release;
  return tile_rates(cpus, seconds);
}

std::vector<std::string> py_supported_isas() {
  std::vector<std::string> names;
  for (Isa isa : supported_isas()) names.emplace_back(isa_name(isa));
  return names;
}

// Of each kernel: operation, instruction set, source, and whether it emulates a matrix unit.
std::vector<std::tuple<std::string, std::string, std::string, bool>> py_registered() {
  std::vector<std::tuple<std::string, std::string, std::string, bool>> rows;
  for (const Kernel& kernel : kernels()) {
    rows.emplace_back(kernel.operation, isa_name(kernel.isa), kernel.source, kernel.emulator);
  }
  return rows;
}

}  // namespace
}  // namespace tilepress

NB_MODULE(_native, m) {
  using namespace tilepress;
  using namespace nb::literals;
  nb::set_leak_warnings(false);  // formats and matrices are cached until the interpreter ends
  m.doc() = "Kernels of tilepress behind argument checks; the package's own modules are the way in.";

  m.def("supported_isas", &py_supported_isas);
  m.def("cpu_features", &cpu_features);
  m.def("force_isa", &force_isa);
  m.def("set_batch_invariant", &set_batch_invariant);
  m.def("active_isa", [] { return std::string(isa_name(active_isa())); });
  m.def("registered", &py_registered);
  m.def("chosen", [](const std::string& operation) { return std::string(isa_name(choose(operation).isa)); });

  bind_formats(m);
  bind_matrices(m);
  bind_row_limits(m);
  bind_planes(m);
  bind_decoder(m);
  bind_kv_stores(m);
  bind_step(m);
  bind_sampling(m);
  m.def("advise_huge_pages",
        [](ConstBytes data) { advise_huge_pages(data.data(), static_cast<int64_t>(data.size())); });
  m.def("keep_freed_memory", &keep_freed_memory);
  m.def("thread_runtime", &thread_runtime);
  m.def("most_threads", &most_threads);
  m.def("read_bandwidth", &py_read_bandwidth, no_convert("data"), "in_parts"_a, "threads"_a);
  m.def("tile_rates", &py_tile_rates, "cpus"_a, "seconds"_a);
}
