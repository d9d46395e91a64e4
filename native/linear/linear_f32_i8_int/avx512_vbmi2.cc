#include "linear/linear_f32_i8_int/rows_avx512.h"
#include "linear/nonzeros_avx512.h"

namespace tilepress {
namespace {

// Codes of four bits are raised where they are unpacked, once for each that is kept.
class RaisedNibbles {
 public:
  static constexpr int kBits = 4;

  explicit RaisedNibbles(const KPanel& weights) : flip_(raised_codes(weights, kBits)) {}

  [[gnu::always_inline]] __m512i line(const uint8_t* in) const {
    return low_nibbles(LowNibbles::rough_line(in), flip_);
  }

 private:
  __m512i flip_;
};
using NonzeroFours = Nibbles<RaisedNibbles>;

// Those of 16-bit tiles, looked up.
class TableNibbles {
 public:
  static constexpr int kBits = 8;

  explicit TableNibbles(const KPanel& weights) : table_(raised_table(*weights.format)) {}

  [[gnu::always_inline]] __m512i line(const uint8_t* in) const { return look_up(LowNibbles::rough_line(in), table_); }

 private:
  __m512i table_;
};
using NonzeroTable = Nibbles<TableNibbles>;

template <class Nonzeros, bool looked_up>
struct Sparse : Nonzeros {
  static constexpr bool kLookedUp = looked_up,
                        kRaised = looked_up || std::is_same_v<Nonzeros, NonzerosAhead<NonzeroFours>>;
  using Nonzeros::Nonzeros;
};

int64_t linear_f32_i8_int(const KPanel& weights, const IntegerActivations& x, float* out, uint8_t* scratch) {
  constexpr int64_t kFewRows = 8;  // above, expanding anew for each eight costs more than keeping what was expanded
  if (!weights.mask || x.batch * x.limb_count > kFewRows) return linear_any<Vbmi2>(weights, x, out, scratch);
  if (weights.format->integers) return sparse<Sparse<NonzerosAhead<NonzeroTable>, true>>(weights, x, out, scratch);
  return with_nonzero_bytes<NonzeroFours>(
      weights, [&]<class Nonzeros>() { return sparse<Sparse<Nonzeros, false>>(weights, x, out, scratch); });
}

TILEPRESS_KERNEL(linear_f32_i8_int);

}  // namespace
}  // namespace tilepress
