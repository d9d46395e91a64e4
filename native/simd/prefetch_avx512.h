#pragma once

#include <immintrin.h>

#include <cstdint>

namespace tilepress {
namespace {

// Prefetches keep more lines in flight: from afar into L2, since L1 can wait for few lines at a time, and from near
// into L1. Always inlined: gcc drops calls of a function that does nothing but prefetch.
constexpr int kFar = 8192, kNear = 1024;  // bytes
[[gnu::always_inline]] inline void prefetch_near(const void* from) {
  _mm_prefetch(static_cast<const char*>(from) + kNear, _MM_HINT_T0);
}
[[gnu::always_inline]] inline void prefetch_ahead(const uint8_t* from) {
  _mm_prefetch(reinterpret_cast<const char*>(from) + kFar, _MM_HINT_T1);
  prefetch_near(from);
}

}  // namespace
}  // namespace tilepress
