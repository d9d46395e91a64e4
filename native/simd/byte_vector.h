// Bytes that the compiler computes with as bytes; plain loops over uint8_t it would widen to int. As many as a register
// of the instruction set has, or 64, which it may keep in memory.
#pragma once

#include <cstring>

#include "tilepress/linear.h"

namespace tilepress {
namespace {

#if defined(__AVX512F__)
constexpr int kSimdBytes = 64;
#elif defined(__AVX2__)
constexpr int kSimdBytes = 32;
#else
constexpr int kSimdBytes = 16;
#endif

using Bytes [[gnu::vector_size(kSimdBytes)]] = uint8_t;

template <class Vector>
[[gnu::always_inline]] inline Vector load(const void* from) {
  Vector vector;
  std::memcpy(&vector, from, sizeof(vector));
  return vector;
}

using ByteVector [[gnu::vector_size(kVectorBytes)]] = uint8_t;

[[gnu::always_inline]] inline ByteVector load_bytes(const uint8_t* from) { return load<ByteVector>(from); }

}  // namespace
}  // namespace tilepress
