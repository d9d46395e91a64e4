// A plane is what `vpmovmskb` makes of 64 bytes: their top bits. Doubling the bytes brings up the next.
#pragma once

#include <immintrin.h>

#include "pack/planes.h"

namespace tilepress {
namespace {

constexpr int kRound = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;

// 64 bytes.
struct Bytes {
  __m256i of[2];
};

}  // namespace
}  // namespace tilepress
