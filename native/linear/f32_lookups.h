// `Lookups` of the instruction set that a file is compiled for: what f32_k_panel.h asks for.
#pragma once

#if defined(__AVX512F__)
#include "linear/f32_lookups_avx512.h"
#elif defined(__AVX2__)
#include "linear/f32_lookups_avx2.h"
#elif defined(__ARM_FEATURE_DOTPROD)
#include "linear/f32_lookups_neon.h"
#else
#include "linear/f32_lookups_scalar.h"
#endif
