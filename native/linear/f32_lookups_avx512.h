// What f32_k_panel.h asks for beside unpacking, in 512 bits.
#pragma once

#include <immintrin.h>

#include "linear/f32_k_panel.h"
#include "pack/unpack.h"

namespace tilepress {
namespace {

// A permutation looks at the four lowest bits of a lane only, so what lies above a code does not matter.
struct Avx512Table : AnyTable {
  explicit Avx512Table(const Format& format)
      : AnyTable(format),
        values(_mm512_maskz_loadu_ps(static_cast<__mmask16>((1 << (1 << format.bits)) - 1), format.values)) {}

  template <class Lanes>
  [[gnu::always_inline]] Floats operator()(Lanes lanes, int at) const {
    return _mm512_permutexvar_ps(std::bit_cast<__m512i>(widen(lanes) >> at), values);
  }

  __m512 values;
};

struct Lookups : Unpack {
  using SmallTable = Avx512Table;
};

}  // namespace
}  // namespace tilepress
