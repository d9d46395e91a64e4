#pragma once

#include "pack/unpack_block.h"

namespace tilepress {
namespace {

struct Scalar {
  static void unpack_stream(int bits, const uint8_t* in, int64_t count, uint8_t* codes) {
    unpack_stream_by_words(bits, in, count, codes);
  }

  // A dropped element reads the next non-zero too, and multiplies it by zero.
  template <class Code>
  static int64_t expand(const Code* nonzeros, const uint8_t* mask, int count, Code* codes, uint8_t* keep) {
    int64_t consumed = 0;
    for (int i = 0; i < count; ++i) {
      const int nonzero = mask[i >> 3] >> (i & 7) & 1;
      if (keep) keep[i] = static_cast<uint8_t>(nonzero);
      codes[i] = static_cast<Code>(nonzeros[consumed] * nonzero);
      consumed += nonzero;
    }
    return consumed;
  }
};

}  // namespace
}  // namespace tilepress
