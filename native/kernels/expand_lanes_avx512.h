// Kept codes at the places of a mask, as lanes of 32 bits: AVX-512 without VBMI2 expands nothing narrower, and looking
// up where bytes go takes twice as long. A row of a tile, `pack` inputs of each neuron side by side, is `pack` vectors
// of sixteen places. In a nameless namespace for the reason that pack_block.h gives.
#pragma once

#include "kernels/lanes.h"
#include "kernels/prefetch_avx512.h"

namespace tilepress {
namespace {

// Calls work(part, its places, its first kept code) for each vector of a row of a tile. `kept` moves on to the next
// row.
template <int pack, class Code, class Work>
[[gnu::always_inline]] inline void for_vectors(const uint8_t* mask, const Code*& kept, const Work& work) {
  prefetch_ahead(mask);
  prefetch_ahead(reinterpret_cast<const uint8_t*>(kept));
  uint64_t places = 0;  // counted from its first bit on each time, so that no count waits for another
  std::memcpy(&places, mask, 2 * pack);
#pragma GCC unroll 4
  for (int part = 0; part < pack; ++part) {
    uint16_t own;
    std::memcpy(&own, mask + 2 * part, sizeof(own));
    const uint64_t before = places & ((uint64_t{1} << 16 * part) - 1);
    work(part, static_cast<__mmask16>(own), kept + _mm_popcnt_u64(before));
  }
  kept += _mm_popcnt_u64(places);
}

// `pack` numbers of 32 bits, one for each input, for every neuron.
template <int pack, class Number>
[[gnu::always_inline]] inline __m512i for_neurons(const Number* numbers) {
  static_assert(sizeof(Number) == 4);
  if constexpr (pack == 4) {
    return _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(numbers)));
  } else {
    int64_t two;
    std::memcpy(&two, numbers, sizeof(two));
    return _mm512_set1_epi64(two);
  }
}

// Of each two lanes side by side, in both vectors, the sum.
struct Neighbours {
  constexpr Neighbours() : lanes() {
    for (int lane = 0; lane < kLanes; ++lane) lanes[lane] = 2 * lane;
  }
  alignas(64) int32_t lanes[kLanes];
};
constexpr Neighbours kNeighbours;

template <class Lanes>
[[gnu::always_inline]] inline Lanes sum_neighbours(Lanes a, Lanes b) {
  const SignedWords first = load<SignedWords>(kNeighbours.lanes);
  return __builtin_shuffle(a, b, first) + __builtin_shuffle(a, b, first + 1);
}

// The sums of sixteen neurons, from those of the vectors of rows.
template <class Lanes>
[[gnu::always_inline]] inline Lanes sum_inputs(const Lanes (&vectors)[2]) {
  return sum_neighbours(vectors[0], vectors[1]);
}
template <class Lanes>
[[gnu::always_inline]] inline Lanes sum_inputs(const Lanes (&vectors)[4]) {
  return sum_neighbours(sum_neighbours(vectors[0], vectors[1]), sum_neighbours(vectors[2], vectors[3]));
}

}  // namespace
}  // namespace tilepress
