#include "kernels/unpack/avx512.h"

#include "kernels/linear_f32_f32_any/linear_span.h"

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

struct Avx512Lookups : Avx512 {
  using SmallTable = Avx512Table;

  [[gnu::always_inline]] static Floats to_floats(Halves halves) {
    return _mm512_cvtph_ps(std::bit_cast<__m256i>(halves));
  }
};

}  // namespace

int64_t avx512::linear_f32_span(const SpanWeights& span, const FloatActivations<float>& x, float* out,
                                uint8_t* scratch) {
  return LinearSpan<Avx512Lookups>{span, x, out, scratch}();
}

}  // namespace tilepress
