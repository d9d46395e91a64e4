// The fastest unpacking of the instruction set that a file is compiled for: `Unpack` is what unpack_block.h asks for.
#pragma once

#if defined(__AVX512VBMI2__)
#include "pack/unpack_avx512_vbmi2.h"
#elif defined(__AVX2__)
#include "pack/unpack_avx2.h"
#elif defined(__ARM_FEATURE_DOTPROD)
#include "pack/unpack_neon.h"
#else
#include "pack/unpack_scalar.h"
#endif

namespace tilepress {
namespace {

#if defined(__AVX512VBMI2__)
using Unpack = Vbmi2;
#elif defined(__AVX2__)
using Unpack = Avx2;
#elif defined(__ARM_FEATURE_DOTPROD)
using Unpack = Neon;
#else
using Unpack = Scalar;
#endif

}  // namespace
}  // namespace tilepress
