// All kernels of this build, and the choice of one for an operation.
#pragma once

#include <atomic>
#include <span>
#include <string_view>

#include "dispatch/isa.h"

namespace tilepress {

struct Kernel {
  std::string_view operation;
  std::string_view source;  // path of its file below native/
  Isa isa;
  bool emulator;  // of a matrix unit, for tests
  void (*function)();
};

// Sorted by operation; within an operation, the preferred kernel comes first.
std::span<const Kernel> kernels();

// The preferred kernel of the operation that the active instruction set permits; null if there is none.
const Kernel* find(std::string_view operation);

// The same; throws std::invalid_argument if there is none. Nearly all operations have a portable kernel.
const Kernel& choose(std::string_view operation);

template <class Operation>
using KernelOf = typename Operation::Function*;

inline constexpr Kernel kNoKernel = {};

// Results of find() for each active instruction set. With caches full of weights, a call should touch little memory.
template <class Operation>
inline constinit std::atomic<const Kernel*> found_kernels[kIsas] = {};

template <class Operation>
const Kernel* find() {
  std::atomic<const Kernel*>& cached = found_kernels<Operation>[static_cast<int>(active_isa())];
  const Kernel* kernel = cached.load(std::memory_order_relaxed);
  if (!kernel) {
    kernel = find(Operation::kName);
    if (!kernel) kernel = &kNoKernel;
    cached.store(kernel, std::memory_order_relaxed);
  }
  return kernel == &kNoKernel ? nullptr : kernel;
}

template <class Operation>
KernelOf<Operation> choose() {
  const Kernel* kernel = find<Operation>();
  return reinterpret_cast<KernelOf<Operation>>((kernel ? *kernel : choose(Operation::kName)).function);
}

// Whether the operation runs on a matrix unit, not on its emulator.
template <class Operation>
bool on_matrix_unit() {
  const Kernel* kernel = find<Operation>();
  return kernel && !kernel->emulator;
}

}  // namespace tilepress
