// A plane is what `vpmovmskb` makes of 64 bytes: their top bits. Doubling the bytes brings up the next.
#pragma once

#include <immintrin.h>

#include "pack/planes.h"

namespace tilepress {
namespace {

// 64 bytes.
struct ByteGroup {
  __m256i of[2];
};

}  // namespace
}  // namespace tilepress
