#include <immintrin.h>

#include "attention/expand_bfp_sparse/expand_units.h"

namespace tilepress {
namespace {

// Eight fields are `bits` bytes: these go to one 64-bit lane, and a multishift extracts each field to its byte.
template <int bits>
struct Fields {
  constexpr Fields() : sources(), shifts() {
    for (int i = 0; i < 64; ++i) {
      sources[i] = static_cast<uint8_t>(i / 8 * bits + i % 8);
      shifts[i] = static_cast<uint8_t>(i % 8 * bits);
    }
  }

  alignas(64) uint8_t sources[64], shifts[64];
};

struct Avx512 {
  template <int bits>
  static void expand(uint64_t mask, const uint8_t* stream, int64_t at, uint8_t* to) {
    static constexpr Fields<bits> kFields;
    const int64_t bit = at * bits;
    const __m512i bytes = _mm512_permutexvar_epi8(_mm512_load_si512(kFields.sources), load(stream + bit / 8));
    const __m512i shifts =
        _mm512_add_epi8(_mm512_load_si512(kFields.shifts), _mm512_set1_epi8(static_cast<char>(bit % 8)));
    const __m512i fields =
        _mm512_and_si512(_mm512_multishift_epi64_epi8(shifts, bytes), _mm512_set1_epi8((1 << bits) - 1));
    _mm512_storeu_si512(to, _mm512_maskz_expand_epi8(mask, fields));
  }

 private:
  static __m512i load(const uint8_t* from) { return _mm512_loadu_si512(from); }
};

void expand_bfp_sparse(const SparseBfpUnits& units, uint8_t* codes, uint8_t* lows) {
  expand_units<Avx512>(units, codes, lows);
}

TILEPRESS_KERNEL(expand_bfp_sparse);

}  // namespace
}  // namespace tilepress
