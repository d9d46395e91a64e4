// Cache lines.
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>
#include <vector>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace tilepress {

// Memory of this size and more is asked for in huge pages: with small ones, touching it for the first time takes longer
// than computing what it holds.
inline constexpr std::size_t kHugePage = std::size_t{2} << 20;

// Aligned to `line`, or to a huge page. To be freed by free_lines with the same sizes.
inline std::align_val_t alignment_of(std::size_t bytes, std::size_t line) {
  return std::align_val_t{bytes < kHugePage ? line : kHugePage};
}
inline void* allocate_lines(std::size_t bytes, std::size_t line) {
  void* memory = ::operator new(bytes, alignment_of(bytes, line));
#if defined(__linux__)
  if (bytes >= kHugePage) madvise(memory, bytes / kHugePage * kHugePage, MADV_HUGEPAGE);  // a wish: it may fail
#endif
  return memory;
}
inline void free_lines(void* memory, std::size_t bytes, std::size_t line) {
  ::operator delete(memory, alignment_of(bytes, line));
}

// Bytes that move between cores together: a cache line and its neighbour, which is fetched with it.
inline constexpr std::size_t kLinePair = 128;

// For vectors that start at a cache line: a row of a tile is one whole line then, and no two threads share it.
template <class T>
struct LineAllocator {
  using value_type = T;

  LineAllocator() = default;
  template <class Other>
  LineAllocator(const LineAllocator<Other>&) {}

  T* allocate(std::size_t count) { return static_cast<T*>(allocate_lines(count * sizeof(T), kLinePair)); }
  void deallocate(T* memory, std::size_t count) { free_lines(memory, count * sizeof(T), kLinePair); }
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

// Memory that is used again: it grows where `count` needs more.
template <class T>
T* with_room(LineVector<T>& memory, std::int64_t count) {
  const auto needed = static_cast<std::size_t>(count);
  if (memory.size() < needed) memory.resize(needed);
  return memory.data();
}

}  // namespace tilepress
