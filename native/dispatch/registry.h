// All kernels of this build, and the choice among those of an operation.
#pragma once

#include <atomic>
#include <span>
#include <string_view>

#include "dispatch/isa.h"

namespace tilepress {

struct Kernel {
  std::string_view operation;
  std::string_view source;  // its file, from native/ on
  Isa isa;
  bool emulator;  // of a matrix unit, for tests
  void (*function)();
};

// By operation; of one operation, the one to prefer comes first.
std::span<const Kernel> kernels();

// The first kernel of the operation that the instruction set in force permits; null where there is none.
const Kernel* find(std::string_view operation);

// The same, of an operation that has a portable kernel, as nearly all have. Throws std::invalid_argument where not.
const Kernel& choose(std::string_view operation);

template <class Operation>
using KernelOf = typename Operation::Function*;

inline constexpr Kernel kNoKernel = {};

// An operation's kernel for each instruction set in force, once it was looked for: where weights have put everything
// else out of the caches, a call should look at little memory.
template <class Operation>
inline constinit std::atomic<const Kernel*> known_kernels[kIsas] = {};

template <class Operation>
const Kernel* find() {
  std::atomic<const Kernel*>& known = known_kernels<Operation>[static_cast<int>(active_isa())];
  const Kernel* kernel = known.load(std::memory_order_relaxed);
  if (!kernel) {
    kernel = find(Operation::kName);
    if (!kernel) kernel = &kNoKernel;
    known.store(kernel, std::memory_order_relaxed);
  }
  return kernel == &kNoKernel ? nullptr : kernel;
}

template <class Operation>
KernelOf<Operation> choose() {
  const Kernel* kernel = find<Operation>();
  return reinterpret_cast<KernelOf<Operation>>((kernel ? *kernel : choose(Operation::kName)).function);
}

// Whether the machine has a matrix unit for the operation, not only an emulator.
template <class Operation>
bool on_matrix_unit() {
  const Kernel* kernel = find<Operation>();
  return kernel && !kernel->emulator;
}

}  // namespace tilepress
