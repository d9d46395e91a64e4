// 64 bytes that the compiler computes with as bytes; plain loops over uint8_t it would widen to int. In a nameless
// namespace for the reason that pack_block.h gives.
#pragma once

#include <cstring>

#include "kernels/all.h"

namespace tilepress {
namespace {

using ByteVector [[gnu::vector_size(kVectorBytes)]] = uint8_t;

[[gnu::always_inline]] inline ByteVector load_bytes(const uint8_t* from) {
  ByteVector bytes;
  std::memcpy(&bytes, from, sizeof(bytes));
  return bytes;
}

}  // namespace
}  // namespace tilepress
