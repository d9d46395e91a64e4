#include "kernels/kept_codes_avx512.h"
#include "kernels/linear_f32_i8_int/rows_avx512.h"

namespace tilepress {
namespace {

// Kept 4-bit codes of 16-bit tiles, looked up.
class TableNibbles {
 public:
  static constexpr int kBits = 8;

  explicit TableNibbles(const SpanWeights& weights) : table_(integer_table(*weights.format)) {}

  [[gnu::always_inline]] __m512i line(const uint8_t* in) const { return look_up(LowNibbles::rough_line(in), table_); }

 private:
  __m512i table_;
};
using KeptTable = Nibbles<TableNibbles>;

template <class Kept, bool looked_up>
struct Sparse : Kept {
  static constexpr bool kLookedUp = looked_up;
  using Kept::Kept;
};

}  // namespace

int64_t avx512_vbmi2::linear_integer_span(const SpanWeights& weights, const IntegerActivations& x, float* out,
                                          uint8_t* scratch) {
  constexpr int64_t kFewRows = 8;  // above, expanding anew for each eight costs more than keeping what was expanded
  if (!weights.mask || x.batch * x.digit_count > kFewRows) return linear_any<Vbmi2>(weights, x, out, scratch);
  if (weights.format->integers) return sparse<Sparse<KeptAhead<KeptTable>, true>>(weights, x, out, scratch);
  return with_kept_bytes(weights, [&]<class Kept>() { return sparse<Sparse<Kept, false>>(weights, x, out, scratch); });
}

}  // namespace tilepress
