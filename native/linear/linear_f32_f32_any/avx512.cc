// For a few rows, sparse weights are decoded and then expanded as 32-bit lanes: AVX-512 without VBMI2 expands nothing
// narrower, and expanding 16-bit codes by table look-ups takes longer. A tile row has `pack` consecutive inputs of each
// neuron, so it is `pack` vectors of 16 places, with accumulators of their own that are added up at the end.
#include "linear/f32_lookups_avx512.h"
#include "pack/unpack_avx2.h"
#include "simd/prefetch_avx512.h"

namespace tilepress {
namespace {

// Calls work(part, mask bits, first non-zero) for each vector of a tile row, and advances `nonzeros` to the next row.
template <int pack, class Code, class Work>
[[gnu::always_inline]] inline void for_vectors(const uint8_t* mask, const Code*& nonzeros, const Work& work) {
  prefetch_ahead(mask);
  prefetch_ahead(reinterpret_cast<const uint8_t*>(nonzeros));
  uint64_t places = 0;
  std::memcpy(&places, mask, 2 * pack);
#pragma GCC unroll 4
  for (int part = 0; part < pack; ++part) {
    uint16_t bits;
    std::memcpy(&bits, mask + 2 * part, sizeof(bits));
    work(part, static_cast<__mmask16>(bits), nonzeros + nonzeros_before(places, part));
  }
  nonzeros += _mm_popcnt_u64(places);
}

// Values of 16 codes.
template <class Code, class Values>
[[gnu::always_inline]] inline Floats values_at(const Values& values, const Code* codes) {
  const auto* from = reinterpret_cast<const __m128i*>(codes);
  if constexpr (sizeof(Code) == 1)
    return values(std::bit_cast<Uint16s>(_mm256_cvtepu8_epi16(_mm_loadu_si128(from))), 0);
  return values(widen(load<Uint16s>(codes)), 0);
}

// `pack` activations, repeated for every neuron.
template <int pack>
[[gnu::always_inline]] inline Floats for_neurons(const float* x) {
  if constexpr (pack == 4) return _mm512_broadcast_f32x4(_mm_loadu_ps(x));
  double two;
  std::memcpy(&two, x, sizeof(two));
  return _mm512_castpd_ps(_mm512_set1_pd(two));
}

// Indices of the even lanes of two vectors.
struct EvenLanes {
  constexpr EvenLanes() : lanes() {
    for (int lane = 0; lane < kLanes; ++lane) lanes[lane] = 2 * lane;
  }
  alignas(64) int32_t lanes[kLanes];
};
constexpr EvenLanes kEvenLanes;

// Sums of adjacent lanes of both vectors.
[[gnu::always_inline]] inline Floats sum_neighbours(Floats a, Floats b) {
  const Int32s even = load<Int32s>(kEvenLanes.lanes);
  return __builtin_shuffle(a, b, even) + __builtin_shuffle(a, b, even + 1);
}

// Sums of 16 neurons, from the vectors of a tile row.
[[gnu::always_inline]] inline Floats sum_inputs(const Floats (&vectors)[2]) {
  return sum_neighbours(vectors[0], vectors[1]);
}
[[gnu::always_inline]] inline Floats sum_inputs(const Floats (&vectors)[4]) {
  return sum_neighbours(sum_neighbours(vectors[0], vectors[1]), sum_neighbours(vectors[2], vectors[3]));
}

// out [rows, 16] += x · weights over inputs first … end, all of one group.
template <class Kind, int rows, class Values>
[[gnu::noinline]] void multiply_nonzeros(const Values& shared_values, const typename Kind::Code*& position,
                                         const uint8_t* mask, int64_t first, int64_t end, const Group& group,
                                         const FewRows<rows>& x, float* out) {
  using Code = typename Kind::Code;
  const Values values = shared_values;  // local copies: stores may alias them
  const Code* nonzeros = position;
  Floats sums[rows][Kind::pack] = {};
#pragma GCC unroll 1
  for (int64_t input = first; input < end; input += Kind::pack) {
    const auto add = [&](int part, __mmask16 places, const Code* codes) __attribute__((always_inline)) {
      const Floats weights = _mm512_maskz_expand_ps(places, values_at(values, codes));
#pragma GCC unroll 4
      for (int row = 0; row < rows; ++row) {
        sums[row][part] = fma(weights, for_neurons<Kind::pack>(x.of[row] + input), sums[row][part]);
      }
    };
    for_vectors<Kind::pack>(mask + 2 * input, nonzeros, add);
  }
  position = nonzeros;
#pragma GCC unroll 4
  for (int row = 0; row < rows; ++row) {
    if (row == x.count) break;
    float* to = out + row * kBlockNeurons;
    const Floats sum = sum_inputs(sums[row]), before = load<Floats>(to);
    store(Kind::scaled ? fma(sum, load<Floats>(group.scales), before) : sum + before, to);
  }
}

struct ExpandingLookups : Lookups {
  static constexpr int kFewSparseRows = 4;

  template <class Kind, class Values>
  static void multiply_sparse(const Values& values, const KPanel& k_panel, const FloatActivations<float>& x,
                              const typename Kind::Code* nonzeros, float* out) {
    if (x.batch == 1) return multiply_rows<Kind, 1>(values, k_panel, x, nonzeros, out);
    if (x.batch == 2) return multiply_rows<Kind, 2>(values, k_panel, x, nonzeros, out);
    multiply_rows<Kind, kFewSparseRows>(values, k_panel, x, nonzeros, out);
  }

 private:
  template <class Kind, int rows, class Values>
  static void multiply_rows(const Values& values, const KPanel& k_panel, const FloatActivations<float>& x,
                            const typename Kind::Code* nonzeros, float* out) {
    const FewRows<rows> few(x, 0);
    if constexpr (!Kind::scaled)
      return multiply_nonzeros<Kind>(values, nonzeros, k_panel.mask, 0, k_panel.inputs, {}, few, out);
    Group group = {};
    for (int64_t first = 0, end; first < k_panel.inputs; first = end) {
      load_group(k_panel, (k_panel.first + first) / k_panel.format->group, values.unit(), group);
      end = least(k_panel.inputs, group.end - k_panel.first);
      multiply_nonzeros<Kind>(values, nonzeros, k_panel.mask, first, end, group, few, out);
    }
  }
};

int64_t linear_f32_f32_any(const KPanel& k_panel, const FloatActivations<float>& x, float* out, uint8_t* scratch) {
  return linear_k_panel<ExpandingLookups>(k_panel, x, out, scratch);
}

TILEPRESS_KERNEL(linear_f32_f32_any);

}  // namespace
}  // namespace tilepress
