#include "dispatch/registry.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

// Bounds of the section in which the linker gathers what TILEPRESS_KERNEL registers.
extern "C" {
[[gnu::visibility("hidden")]] extern const tilepress::KernelEntry* const __start_tilepress_kernels[];
[[gnu::visibility("hidden")]] extern const tilepress::KernelEntry* const __stop_tilepress_kernels[];
}

namespace tilepress {
namespace {

// The part of a path below native/, however the compiler was called.
std::string_view from_native(std::string_view path) {
  constexpr std::string_view kRoot = "native/";
  const size_t at = path.rfind(kRoot);
  return at == path.npos ? path : path.substr(at + kRoot.size());
}

Kernel kernel_of(const KernelEntry& entry) {
  Kernel kernel = {entry.operation, from_native(entry.source), entry.isa, entry.emulator, nullptr};
  std::memcpy(&kernel.function, entry.function, sizeof kernel.function);
  return kernel;
}

std::vector<Kernel> sorted_kernels() {
  std::vector<Kernel> kernels;
  for (auto entry = __start_tilepress_kernels; entry != __stop_tilepress_kernels; ++entry) {
    kernels.push_back(kernel_of(**entry));
  }
  std::ranges::sort(kernels, [](const Kernel& a, const Kernel& b) {
    return std::tuple(a.operation, b.isa) < std::tuple(b.operation, a.isa);
  });
  return kernels;
}

}  // namespace

std::span<const Kernel> kernels() {
  static const std::vector<Kernel> all = sorted_kernels();
  return all;
}

const Kernel* find(std::string_view operation) {
  const Isa active = active_isa();
  for (const Kernel& kernel : kernels()) {
    if (kernel.operation == operation && permitted(kernel.isa, active)) return &kernel;
  }
  return nullptr;
}

const Kernel& choose(std::string_view operation) {
  if (const Kernel* kernel = find(operation)) return *kernel;
  std::string sets;
  for (const Kernel& kernel : kernels()) {
    if (kernel.operation == operation) sets += (sets.empty() ? "" : ", ") + std::string(isa_name(kernel.isa));
  }
  throw std::invalid_argument("no kernel for " + std::string(operation) + " on " + std::string(isa_name(active_isa())) +
                              "; this build has " + (sets.empty() ? "none" : "one for " + sets));
}

}  // namespace tilepress
