// A few rows of activations meet sparse weights as they are kept, decoded and expanded to lanes of 32 bits: without
// VBMI2 AVX-512 expands nothing narrower, and to look up where 16-bit codes go takes longer than all of this. A row of
// a tile has `pack` inputs of each neuron side by side, so it is `pack` vectors of sixteen places, with sums of their
// own; in the end a neuron's are added up.
#include "linear/f32_lookups_avx512.h"
#include "pack/unpack_avx2.h"
#include "simd/prefetch_avx512.h"

namespace tilepress {
namespace {

// Calls work(part, its places, its first non-zero) for each vector of a row of a tile. `nonzeros` moves on to the next
// row.
template <int pack, class Code, class Work>
[[gnu::always_inline]] inline void for_vectors(const uint8_t* mask, const Code*& nonzeros, const Work& work) {
  prefetch_ahead(mask);
  prefetch_ahead(reinterpret_cast<const uint8_t*>(nonzeros));
  uint64_t places = 0;
  std::memcpy(&places, mask, 2 * pack);
#pragma GCC unroll 4
  for (int part = 0; part < pack; ++part) {
    uint16_t own;
    std::memcpy(&own, mask + 2 * part, sizeof(own));
    work(part, static_cast<__mmask16>(own), nonzeros + nonzeros_before(places, part));
  }
  nonzeros += _mm_popcnt_u64(places);
}

// The values of sixteen codes, in whichever width they are made of.
template <class Code, class Values>
[[gnu::always_inline]] inline Floats values_at(const Values& values, const Code* codes) {
  const auto* from = reinterpret_cast<const __m128i*>(codes);
  if constexpr (sizeof(Code) == 1) return values(std::bit_cast<Halves>(_mm256_cvtepu8_epi16(_mm_loadu_si128(from))), 0);
  return values(widen(load<Halves>(codes)), 0);
}

// `pack` activations, one for each input, for every neuron.
template <int pack>
[[gnu::always_inline]] inline Floats for_neurons(const float* x) {
  if constexpr (pack == 4) return _mm512_broadcast_f32x4(_mm_loadu_ps(x));
  double two;
  std::memcpy(&two, x, sizeof(two));
  return _mm512_castpd_ps(_mm512_set1_pd(two));
}

// Places of every other lane of two vectors.
struct EveryOther {
  constexpr EveryOther() : lanes() {
    for (int lane = 0; lane < kLanes; ++lane) lanes[lane] = 2 * lane;
  }
  alignas(64) int32_t lanes[kLanes];
};
constexpr EveryOther kEveryOther;

// Of each two lanes side by side, in both vectors, the sum.
[[gnu::always_inline]] inline Floats sum_neighbours(Floats a, Floats b) {
  const SignedWords even = load<SignedWords>(kEveryOther.lanes);
  return __builtin_shuffle(a, b, even) + __builtin_shuffle(a, b, even + 1);
}

// The sums of sixteen neurons, from those of the vectors of a row.
[[gnu::always_inline]] inline Floats sum_inputs(const Floats (&vectors)[2]) {
  return sum_neighbours(vectors[0], vectors[1]);
}
[[gnu::always_inline]] inline Floats sum_inputs(const Floats (&vectors)[4]) {
  return sum_neighbours(sum_neighbours(vectors[0], vectors[1]), sum_neighbours(vectors[2], vectors[3]));
}

// out [rows, 16] += the products of inputs `first` to `end` of a K-panel, all in one group, with so many rows of x.
template <class Kind, int rows, class Values>
[[gnu::noinline]] void multiply_nonzeros(const Values& values_there, const typename Kind::Code*& nonzeros_there,
                                         const uint8_t* mask, int64_t first, int64_t end, const Group& group,
                                         const FewRows<rows>& x, float* out) {
  using Code = typename Kind::Code;
  const Values values = values_there;
  const Code* nonzeros = nonzeros_there;
  Floats sums[rows][Kind::pack] = {};
#pragma GCC unroll 1
  for (int64_t input = first; input < end; input += Kind::pack) {
    const auto add = [&](int part, __mmask16 places, const Code* codes) __attribute__((always_inline)) {
      const Floats weights = _mm512_maskz_expand_ps(places, values_at(values, codes));
#pragma GCC unroll 4
      for (int row = 0; row < rows; ++row) {
        sums[row][part] = fused(weights, for_neurons<Kind::pack>(x.of[row] + input), sums[row][part]);
      }
    };
    for_vectors<Kind::pack>(mask + 2 * input, nonzeros, add);
  }
  nonzeros_there = nonzeros;
#pragma GCC unroll 4
  for (int row = 0; row < rows; ++row) {
    if (row == x.count) break;
    float* to = out + row * kBlockNeurons;
    const Floats sum = sum_inputs(sums[row]), before = load<Floats>(to);
    store(Kind::scaled ? fused(sum, load<Floats>(group.scales), before) : sum + before, to);
  }
}

struct Expanding : Lookups {
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
  return linear_k_panel<Expanding>(k_panel, x, out, scratch);
}

TILEPRESS_KERNEL(linear_f32_f32_any);

}  // namespace
}  // namespace tilepress
