// For weights that fp16 represents exactly: decoded to fp16 in registers and multiplied at once with fp16 activations,
// at four times the rate of vdpbf16ps. fp16 sums cover one tile's 32 inputs, at most 16 products each; subnormals are
// kept, at no cost.
#include "linear/bf16_rows_avx512.h"
#include "tilepress/linear.h"

namespace tilepress {
namespace {

constexpr int kTileInputs = tile_inputs(16);
static_assert(kTileInputs == kHalfGroup && kStepInputs == 8);

// Values (see bf16_values_avx512.h) that give vectors of fp16; kScaled: the format may have scales. Interleaved ones
// have inputs 0 and 1 of eight neurons in the lower half of a vector, and inputs 2 and 3 of the same in the upper half.
struct Interleaved {
  static constexpr bool kScaled = true;
  static void begin_group(int64_t) {}

 protected:
  static RowPair interleave(__m512i low, __m512i high) {
    return {_mm512_unpacklo_epi8(low, high), _mm512_unpackhi_epi8(low, high)};
  }
};

// E5M2: codes are the upper bytes of fp16.
struct UpperBytes : Interleaved {
  static constexpr bool kScaled = false;
  explicit UpperBytes(const KPanel&) {}
  static __m512i dropped() { return _mm512_setzero_si512(); }
  static RowPair rows(__m512i codes) { return interleave(_mm512_setzero_si512(), codes); }
};

// E4M3: one bit of exponent less, so the last bit of a code is the first of the lower byte.
struct ShiftedBytes : Interleaved {
  explicit ShiftedBytes(const KPanel&) {}
  static __m512i dropped() { return _mm512_setzero_si512(); }

  static RowPair rows(__m512i codes) {
    // Bit matrices for gf2p8affineqb: from the lowest byte on, one byte for each bit of the result from the highest on.
    constexpr int64_t kUpper = 0x02'04'08'10'20'40'00'80, kLower = 0x01;
    const __m512i upper = _mm512_gf2p8affine_epi64_epi8(codes, _mm512_set1_epi64(kUpper), 0);
    return interleave(_mm512_gf2p8affine_epi64_epi8(codes, _mm512_set1_epi64(kLower), 0), upper);
  }
};

// Codes of at most six bits, looked up, low and high bytes apart. Dense weights may have anything in the bits above.
class HalfTable : public Interleaved {
 public:
  explicit HalfTable(const KPanel& weights) : table_(weights.format->halves) {
    const Format& format = *weights.format;
    const bool room = weights.mask && format.bits < 6;  // the entry after the last code is 0
    if (!room) table_.repeat(1 << format.bits);
    if (weights.mask) dropped_ = _mm512_set1_epi8(static_cast<char>(room ? 1 << format.bits : zero_code(format)));
  }
  __m512i dropped() const { return dropped_; }

  RowPair rows(__m512i codes) const {
    return interleave(_mm512_permutexvar_epi8(codes, table_.low), _mm512_permutexvar_epi8(codes, table_.high));
  }

 private:
  ByteTable table_;
  __m512i dropped_ = _mm512_setzero_si512();
};

// fp16 codes: a vector has two inputs of all neurons.
struct HalfCodes {
  static constexpr bool kScaled = false;
  explicit HalfCodes(const KPanel&) {}
  static void begin_group(int64_t) {}
  static __m512i row(__m512i codes) { return codes; }
};

__m512i pair_at(const uint16_t* x) {
  int32_t pair;
  std::memcpy(&pair, x, 4);
  return _mm512_set1_epi32(pair);
}

[[gnu::always_inline]] inline void add_product(__m512h& sum, __m512i weights, __m512i x) {
  sum = _mm512_fmadd_ph(std::bit_cast<__m512h>(weights), std::bit_cast<__m512h>(x), sum);
}

[[gnu::always_inline]] inline __m256h half_of(__m512h vector, int half) {
  const auto bits = std::bit_cast<__m512i>(vector);
  return std::bit_cast<__m256h>(half ? _mm512_extracti64x4_epi64(bits, 1) : _mm512_castsi512_si256(bits));
}

// fp16 sums of a tile for several rows of activations, two vectors each.
template <class Values, int rows>
struct TileSums {
  static constexpr bool kInterleaved = std::is_base_of_v<Interleaved, Values>;

  TileSums() {
    for (auto& row : half_sums) row[0] = row[1] = _mm512_setzero_ph();
  }

  [[gnu::always_inline]] void add(const RowPair* pairs, const uint16_t* x, int64_t stride) {
    for (int i = 0; i < rows; ++i, x += stride) {
      for (int line = 0; line < kStepLines; ++line) {
        const __m512i first = pair_at(x + kLineInputs * line), second = pair_at(x + kLineInputs * line + 2);
        const __m512i both = _mm512_mask_mov_epi32(first, 0xff00, second);
        add_product(half_sums[i][0], pairs[line].first, kInterleaved ? both : first);
        add_product(half_sums[i][1], pairs[line].second, kInterleaved ? both : second);
      }
    }
  }

  // sums [rows, 2 vectors] += fp16 sums · unit: two floats per neuron, one for each input of a pair.
  [[gnu::always_inline]] void add_to(__m512 (*sums)[2], const float* units, int64_t unit_stride) const {
    for (int i = 0; i < rows; ++i) {
      const __m512 unit = _mm512_set1_ps(units[i * unit_stride]);
      const __m512h whole = _mm512_add_ph(half_sums[i][0], half_sums[i][1]);  // if not interleaved
      for (int part = 0; part < 2; ++part) {
        const __m256h halves = kInterleaved
                                   ? _mm256_add_ph(half_of(half_sums[i][part], 0), half_of(half_sums[i][part], 1))
                                   : half_of(whole, part);
        sums[i][part] = _mm512_fmadd_ps(_mm512_cvtph_ps(std::bit_cast<__m256i>(halves)), unit, sums[i][part]);
      }
    }
  }

  // Adds the two floats of each neuron, and puts neurons in order.
  [[gnu::always_inline]] static __m512 sum_pairs(const __m512* sums) {
    constexpr int kFirst = 0x88, kSecond = 0xdd;
    const __m512 pairs =
        _mm512_add_ps(_mm512_shuffle_ps(sums[0], sums[1], kFirst), _mm512_shuffle_ps(sums[0], sums[1], kSecond));
    const __m512i order = kInterleaved ? _mm512_setr_epi32(0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15)
                                       : _mm512_setr_epi32(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15);
    return _mm512_permutexvar_ps(order, pairs);
  }

  __m512h half_sums[rows][2];
};

template <class Source, class Values, ScaleType type, int rows>
int64_t multiply_rows(const KPanel& weights, const HalfActivations& x, uint8_t* scratch, int64_t row, float* out) {
  using Sums = TileSums<Values, rows>;
  Source source(weights, scratch);
  const Values values(weights);
  const uint16_t* from = x.x + row * x.stride;
  const float* units = x.units + row * x.unit_stride;
  __m512 accumulators[rows];
  for (auto& total : accumulators) total = _mm512_setzero_ps();
  for_groups(weights, weights.tiles * kTileInputs, [&](int64_t group, int64_t begin, int64_t end) {
    __m512 sums[rows][2];
    for (auto& sum : sums) sum[0] = sum[1] = _mm512_setzero_ps();
    for (int64_t input = begin; input < end; input += kTileInputs) {
      Sums tile_sums;
#pragma GCC unroll 4
      for (int step = 0; step < kTileInputs; step += kStepInputs) {
        RowPair pairs[kStepLines];
        source.next(values, pairs);
        tile_sums.add(pairs, from + input + step, x.stride);
      }
      tile_sums.add_to(sums, units + input / kTileInputs, x.unit_stride);
    }
    const __m512 scales = scales_of<type>(weights.scales, group);
    for (int i = 0; i < rows; ++i) accumulators[i] = _mm512_fmadd_ps(Sums::sum_pairs(sums[i]), scales, accumulators[i]);
  });
  for (int i = 0; i < rows; ++i) {
    float* at = out + i * kBlockNeurons;
    _mm512_storeu_ps(at, _mm512_add_ps(_mm512_loadu_ps(at), accumulators[i]));
  }
  return source.consumed();
}

template <class Source, class Values>
int64_t multiply_all(const KPanel& weights, const HalfActivations& x, uint8_t* scratch, float* out) {
  int64_t row = 0, consumed = 0;
  const auto run = [&]<int rows>() {
    for (; row + rows <= x.batch; row += rows) {
      const auto multiply = [&]<ScaleType type>() {
        consumed = multiply_rows<Source, Values, type, rows>(weights, x, scratch, row, out + row * kBlockNeurons);
      };
      if constexpr (Values::kScaled) {
        with_scale_type(*weights.format, multiply);
      } else {
        multiply.template operator()<ScaleType::none>();
      }
    }
  };
  run.template operator()<2>();
  run.template operator()<1>();
  return consumed;
}

// Calls work<Source, Values>() with those that support the weights.
template <class Work>
int64_t with_halves(const KPanel& weights, const Work& work) {
  const Format& format = *weights.format;
  if (format.bits == 16) {
    if (weights.mask) return work.template operator()<SparseRows<InPlaceNonzeros<uint16_t>>, HalfCodes>();
    return work.template operator()<DenseWords, HalfCodes>();
  }
  const auto of_bytes = [&]<class Source>() {
    if (format.mantissa_bits == 2) return work.template operator()<Source, UpperBytes>();
    return work.template operator()<Source, ShiftedBytes>();
  };
  if (format.bits == 8) {
    if (weights.mask) return of_bytes.template operator()<SparseCodes<InPlaceNonzeros<uint8_t>>>();
    return of_bytes.template operator()<DenseBytes>();
  }
  if (weights.mask && format.bits == 4)
    return work.template operator()<SparseCodes<NonzerosAhead<Fields<4>>>, HalfTable>();
  if (weights.mask) return work.template operator()<SparseCodes<NonzerosAhead<Fields<0>>>, HalfTable>();
  if (format.bits == 4) return work.template operator()<Dense4, HalfTable>();
  return work.template operator()<DenseBytes, HalfTable>();
}

int64_t linear_f32_f16_any(const KPanel& weights, const HalfActivations& x, float* out, uint8_t* scratch) {
  unpack_dense_bytes(weights, scratch);
  return with_halves(
      weights, [&]<class Source, class Values>() { return multiply_all<Source, Values>(weights, x, scratch, out); });
}

TILEPRESS_KERNEL(linear_f32_f16_any);

}  // namespace
}  // namespace tilepress
