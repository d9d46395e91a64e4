#include "linear/linear_f32_i8_int/rows_avx512.h"
#include "linear/nonzeros_avx512.h"

namespace tilepress {
namespace {

// 4-bit codes, made unsigned when they are unpacked: once per non-zero.
class UnsignedNibbles {
 public:
  static constexpr int kBits = 4;

  explicit UnsignedNibbles(const KPanel& weights) : flip_(sign_flip(weights, kBits)) {}

  [[gnu::always_inline]] __m512i line(const uint8_t* in) const {
    return low_nibbles(LowNibbles::rough_line(in), flip_);
  }

 private:
  __m512i flip_;
};
using NonzeroNibbles = Nibbles<UnsignedNibbles>;

// 4-bit codes of 16-bit tiles, looked up as unsigned integers.
class TableNibbles {
 public:
  static constexpr int kBits = 8;

  explicit TableNibbles(const KPanel& weights) : table_(unsigned_table(*weights.format)) {}

  [[gnu::always_inline]] __m512i line(const uint8_t* in) const { return look_up(LowNibbles::rough_line(in), table_); }

 private:
  __m512i table_;
};
using NonzeroTable = Nibbles<TableNibbles>;

template <class Nonzeros, bool looked_up>
struct Sparse : Nonzeros {
  static constexpr bool kLookedUp = looked_up,
                        kUnsigned = looked_up || std::is_same_v<Nonzeros, NonzerosAhead<NonzeroNibbles>>;
  using Nonzeros::Nonzeros;
};

int64_t linear_f32_i8_int(const KPanel& weights, const IntegerActivations& x, float* out, uint8_t* scratch) {
  // Above this, expanding again for every eight lines costs more than decoding to memory.
  constexpr int64_t kFewLines = 8;
  if (!weights.mask || x.batch * x.limb_count > kFewLines) return linear_any<Vbmi2>(weights, x, out, scratch);
  if (weights.format->integers) return sparse<Sparse<NonzerosAhead<NonzeroTable>, true>>(weights, x, out, scratch);
  return with_nonzero_bytes<NonzeroNibbles>(
      weights, [&]<class Nonzeros>() { return sparse<Sparse<Nonzeros, false>>(weights, x, out, scratch); });
}

TILEPRESS_KERNEL(linear_f32_i8_int);

}  // namespace
}  // namespace tilepress
