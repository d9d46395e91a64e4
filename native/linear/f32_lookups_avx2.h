// What f32_k_panel.h asks for beside unpacking.
#pragma once

#include "linear/f32_k_panel.h"
#include "pack/unpack_avx2.h"

namespace tilepress {
namespace {

// Sixteen floats in two registers: a permutation of each looks at the three lowest bits of a code, the fourth chooses.
struct Avx2Table : AnyTable {
  explicit Avx2Table(const Format& format) : AnyTable(format) {
    alignas(64) float values[16] = {};
    std::memcpy(values, format.values, sizeof(float) << format.bits);
    low = _mm256_load_ps(values), high = _mm256_load_ps(values + 8);
  }

  template <class Lanes>
  [[gnu::always_inline]] Floats operator()(Lanes lanes, int at) const {
    const __m256i codes = std::bit_cast<__m256i>(widen(lanes) >> at);
    const __m256 choice = _mm256_castsi256_ps(_mm256_slli_epi32(codes, 28));
    return _mm256_blendv_ps(_mm256_permutevar8x32_ps(low, codes), _mm256_permutevar8x32_ps(high, codes), choice);
  }

  __m256 low, high;
};

struct Lookups : Avx2 {
  using SmallTable = Avx2Table;

  [[gnu::always_inline]] static void look_up_words(const uint8_t* low, const uint8_t* high, Bytes codes,
                                                   uint16_t* values) {
    const auto bytes = [&](const uint8_t* table) __attribute__((always_inline)) {
      const __m256i twice = _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(table)));
      return _mm256_shuffle_epi8(twice, std::bit_cast<__m256i>(codes));
    };
    const __m256i lows = bytes(low), highs = bytes(high);
    const __m256i even = _mm256_unpacklo_epi8(lows, highs), odd = _mm256_unpackhi_epi8(lows, highs);  // by eights
    auto* to = reinterpret_cast<__m256i*>(values);
    _mm256_storeu_si256(to, _mm256_permute2x128_si256(even, odd, 0x20));
    _mm256_storeu_si256(to + 1, _mm256_permute2x128_si256(even, odd, 0x31));
  }
};

}  // namespace
}  // namespace tilepress
