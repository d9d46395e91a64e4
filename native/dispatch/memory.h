// Memory as caches see it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>
#include <vector>

namespace tilepress {

// Bytes that go from core to core together: a line, and the one beside it that is fetched with it.
inline constexpr std::size_t kLinePair = 128;

// A vector whose first element begins a line: a row of a tile is one line then, not parts of two, and belongs to one
// thread at a time.
template <class T>
struct LineAllocator {
  using value_type = T;

  LineAllocator() = default;
  template <class Other>
  LineAllocator(const LineAllocator<Other>&) {}

  T* allocate(std::size_t count) {
    return static_cast<T*>(::operator new(count * sizeof(T), std::align_val_t{kLinePair}));
  }
  void deallocate(T* memory, std::size_t) { ::operator delete(memory, std::align_val_t{kLinePair}); }
  bool operator==(const LineAllocator&) const { return true; }
};

// Takes the line from all caches that have a copy of it, as writing to it would, without waiting for it.
inline void take_line([[maybe_unused]] const void* line) {
#if defined(__x86_64__)
  __asm__ volatile("prefetchw %0" : : "m"(*static_cast<const uint8_t*>(line)));  // the builtin asks for a copy only
#endif
}

template <class T>
using LineVector = std::vector<T, LineAllocator<T>>;

}  // namespace tilepress
