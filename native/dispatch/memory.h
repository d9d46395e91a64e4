// Cache lines.
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>
#include <vector>

namespace tilepress {

// Bytes that move between cores together: a cache line and its neighbour, which is fetched with it.
inline constexpr std::size_t kLinePair = 128;

// For vectors that start at a cache line: a row of a tile is one whole line then, and no two threads share it.
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

// Starts to fetch a line for writing: other caches drop their copies of it.
inline void prefetch_for_write([[maybe_unused]] const void* line) {
#if defined(__x86_64__)
  __asm__ volatile("prefetchw %0"
                   :
                   : "m"(*static_cast<const uint8_t*>(line)));  // __builtin_prefetch would fetch a shared copy
#endif
}

template <class T>
using LineVector = std::vector<T, LineAllocator<T>>;

}  // namespace tilepress
