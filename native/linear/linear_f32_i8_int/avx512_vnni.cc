#include "linear/linear_f32_i8_int/rows_avx512.h"
#include "pack/unpack_avx2.h"

namespace tilepress {
namespace {

// One vector from four of 16 bytes in memory.
template <class At>
[[gnu::always_inline]] inline __m512i four_quarters(const At& at) {
  const auto quarter = [&](int i) __attribute__((always_inline)) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(at(i)));
  };
  const __m512i two = _mm512_inserti32x4(_mm512_castsi128_si512(quarter(0)), quarter(1), 1);
  return _mm512_inserti32x4(_mm512_inserti32x4(two, quarter(2), 2), quarter(3), 3);
}

// A reader of non-zeros as in nonzeros_avx512.h, for codes that unpack_nonzeros has unpacked, and that may have been
// looked up there. Without vpexpandb, tables give the shuffle of each 16 bytes.
template <bool looked_up>
class NonzeroBytes {
 public:
  static constexpr int kBits = looked_up ? 8 : 0;
  static constexpr bool kLookedUp = looked_up, kUnsigned = false;

  NonzeroBytes(const KPanel& weights, const uint8_t* scratch)
      : from_(weights.format->bits == 8 ? weights.packed + weights.consumed : scratch + weights.consumed % 8),
        at_(from_) {}

  template <int vectors, bool filled, class Work>
  [[gnu::always_inline]] void next(const uint8_t* mask, __m512i fill, const Work& work) {
#pragma GCC unroll 4
    for (int i = 0; i < vectors; ++i, mask += 8) {
      prefetch_ahead(at_);
      uint64_t places;
      std::memcpy(&places, mask, sizeof(places));
      const auto nonzeros = [&](int part)
                                __attribute__((always_inline)) { return at_ + nonzeros_before(places, part); };
      const __m512i codes = four_quarters(nonzeros);
      const auto first = [&](int part) __attribute__((always_inline)) { return kWideShuffles.first[mask[2 * part]]; };
      const auto second = [&](int part)
                              __attribute__((always_inline)) { return kWideShuffles.second[mask[2 * part + 1]]; };
      const __m512i ranks = _mm512_add_epi8(four_quarters(first), four_quarters(second));
      const __m512i expanded = _mm512_shuffle_epi8(codes, ranks);
      work(i, filled ? _mm512_mask_mov_epi8(fill, places, expanded) : expanded);
      at_ += _mm_popcnt_u64(places);
    }
  }

  int64_t consumed() const { return at_ - from_; }

 private:
  const uint8_t *from_, *at_;
};

int64_t linear_f32_i8_int(const KPanel& weights, const IntegerActivations& x, float* out, uint8_t* scratch) {
  // Above this, expanding again for every few lines costs more than decoding to memory.
  constexpr int64_t kFewLines = 6;
  if (!weights.mask || x.batch * x.limb_count > kFewLines) return linear_any<Avx2>(weights, x, out, scratch);
  const Nonzeros nonzeros = unpack_nonzeros<Avx2>(weights, scratch);
  if (nonzeros.count < 0) return -1;
  if (!weights.format->integers) return sparse<NonzeroBytes<false>>(weights, x, out, scratch);
  look_up_integers(*weights.format, scratch, nonzeros.count + kNonzerosBefore);
  return sparse<NonzeroBytes<true>>(weights, x, out, scratch);
}

TILEPRESS_KERNEL(linear_f32_i8_int);

}  // namespace
}  // namespace tilepress
