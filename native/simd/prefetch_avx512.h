#pragma once

#include <immintrin.h>

#include <cstdint>

namespace tilepress {
namespace {

// A core asks memory for more at a time if it is told early what comes: into the second cache from afar, since the
// first can wait for few lines at a time, and into the first from near. Always inlined: a call of a function that does
// nothing but prefetch is one that gcc leaves out.
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
