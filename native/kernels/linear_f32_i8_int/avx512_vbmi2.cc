// Beside what every AVX-512 with VNNI does, sparse codes for a few rows are expanded in registers.
#include "kernels/kept_codes_avx512.h"
#include "kernels/linear_f32_i8_int/dense_avx512.h"

namespace tilepress {
namespace {

// The kept ones.
class TableNibbles {
 public:
  static constexpr int kBits = 8;

  explicit TableNibbles(const SpanWeights& weights) : table_(integer_table(*weights.format)) {}

  [[gnu::always_inline]] __m512i line(const uint8_t* in) const {
    return look_up(LowNibbles::rough_line(in), table_);
  }

 private:
  __m512i table_;
};
using KeptTable = Nibbles<TableNibbles>;

template <class Kept>
struct Sparse : Kept {
  static constexpr bool kLookedUp = std::is_same_v<Kept, KeptAhead<KeptTable>>;
  using Kept::Kept;
};

template <class Codes, Ending ending, int rows, int digits>
int64_t sparse_rows(const SpanWeights& weights, const IntegerActivations& x, int64_t row, float* out,
                    uint8_t* scratch) {
  const int raise_bits = (Codes::kBits ? Codes::kBits : weights.format->bits) - 1;
  const __m512i flip = _mm512_set1_epi8(static_cast<char>(weights.zeros ? 0 : 1 << raise_bits));
  const RowsOfX<rows, digits> from(x, row);
  const uint8_t* mask = weights.mask;
  Codes codes(weights, scratch);
  Totals<ending, rows> totals(weights, x, row);
  for_segments(weights, x, [&](const Segment& segment) {
    const __m512i others = ending == Ending::zeros ? dropped(weights, segment.group) : _mm512_setzero_si512();
    Sums<rows, digits> sums;
    sums.clear();
    for_steps<ending>(segment, [&](int64_t input) __attribute__((always_inline)) {
      prefetch_ahead(mask);
      codes.template next<kStepRows, ending == Ending::zeros>(
          mask, others, [&](int tile_row, __m512i expanded) __attribute__((always_inline)) {
            const __m512i placed = Codes::kLookedUp ? pairs_to_fours(expanded) : expanded;
            sums.add(from, input, tile_row, _mm512_xor_si512(placed, flip));
          });
      mask += kStepRows * kMaskBytes<uint8_t>;
    });
    totals.add(segment, raise_bits, sums);
  });
  totals.add_to(out);
  return codes.taken();
}

template <class Codes>
int64_t sparse(const SpanWeights& weights, const IntegerActivations& x, float* out, uint8_t* scratch) {
  int64_t taken = 0;
  with_ending<Codes>(weights, x, [&]<Ending ending>() {
    in_steps<Codes>(x, out, [&]<int rows, int digits>(int64_t row, float* to) {
      taken = sparse_rows<Codes, ending, rows, digits>(weights, x, row, to, scratch);
    });
  });
  return taken;
}

}  // namespace

int64_t avx512_vbmi2::linear_integer_span(const SpanWeights& weights, const IntegerActivations& x, float* out,
                                          uint8_t* scratch) {
  constexpr int64_t kFewRows = 8;  // above, expanding anew for each eight costs more than keeping what was expanded
  if (!weights.mask || x.batch * x.digit_count > kFewRows) return linear_any<Vbmi2>(weights, x, out, scratch);
  if (weights.format->integers) return sparse<Sparse<KeptAhead<KeptTable>>>(weights, x, out, scratch);
  return with_kept_bytes(weights, [&]<class Kept>() { return sparse<Sparse<Kept>>(weights, x, out, scratch); });
}

}  // namespace tilepress
