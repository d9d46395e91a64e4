#include "dispatch/kv_memory.h"

#include <cstring>
#include <new>

#include "dispatch/matrix.h"

namespace tilepress {

KvMemory::KvMemory(int64_t size) : size_(size) {
  constexpr int64_t kAlignment = 64, kHuge = int64_t{2} << 20;
  if (!size) return;
  const int64_t alignment = size >= kHuge ? kHuge : kAlignment;
  const int64_t whole = (size + kAlignment - 1) / kAlignment * kAlignment;
  void* memory = nullptr;
  if (posix_memalign(&memory, static_cast<size_t>(alignment), static_cast<size_t>(whole))) throw std::bad_alloc();
  data_.reset(static_cast<uint8_t*>(memory), std::free);
  if (size >= kHuge) advise_huge_pages(data_.get(), size);
  std::memset(data_.get(), 0, static_cast<size_t>(whole));
}

KvMemory KvMemory::clone() const {
  KvMemory copy(size_);
  if (size_) std::memcpy(copy.data(), data(), static_cast<size_t>(size_));
  return copy;
}

}  // namespace tilepress
