// Vectors as wide as the registers of the instruction set, a lane a neuron. Wider ones the compiler would keep in
// memory.
#pragma once

#if defined(__aarch64__)
#include <arm_neon.h>
#elif defined(__AVX2__)
#include <immintrin.h>
#endif

#include <bit>
#include <cstring>
#include <type_traits>

#include "quantize/scales.h"
#include "simd/byte_vector.h"

namespace tilepress {
namespace {

constexpr int kLanes = kSimdBytes / 4;
constexpr int kParts = kBlockNeurons / kLanes;  // vectors that hold a block's neurons

using Floats [[gnu::vector_size(kSimdBytes)]] = float;
using Words [[gnu::vector_size(kSimdBytes)]] = uint32_t;
using SignedWords [[gnu::vector_size(kSimdBytes)]] = int32_t;
using Halves [[gnu::vector_size(kSimdBytes / 2)]] = uint16_t;
using Quarters [[gnu::vector_size(kSimdBytes / 4)]] = uint8_t;
using SignedHalves [[gnu::vector_size(kSimdBytes / 2)]] = int16_t;
using SignedBytes [[gnu::vector_size(kSimdBytes)]] = int8_t;

[[gnu::always_inline]] inline void store(Floats vector, float* to) { std::memcpy(to, &vector, sizeof(vector)); }

// Lanes of any width as 32 bits. For NEON and x86, gcc 12 would convert some lane by lane, others half by half.
[[gnu::always_inline]] inline Words widen(Words lanes) { return lanes; }
[[gnu::always_inline]] inline Words widen(Halves lanes) {
#if defined(__aarch64__)
  return std::bit_cast<Words>(vmovl_u16(std::bit_cast<uint16x4_t>(lanes)));
#elif defined(__AVX512F__)
  return std::bit_cast<Words>(_mm512_cvtepu16_epi32(std::bit_cast<__m256i>(lanes)));
#else
  return __builtin_convertvector(lanes, Words);
#endif
}

[[gnu::always_inline]] inline Words widen(Quarters lanes) {
#if defined(__AVX512F__)
  return std::bit_cast<Words>(_mm512_cvtepu8_epi32(std::bit_cast<__m128i>(lanes)));
#elif defined(__AVX2__)
  return std::bit_cast<Words>(_mm256_cvtepu8_epi32(_mm_cvtsi64_si128(std::bit_cast<int64_t>(lanes))));
#else
  return __builtin_convertvector(lanes, Words);
#endif
}

// Sixteen bits of each lane from bit `at` on; what lies above is dropped, or zero.
template <class Lanes>
[[gnu::always_inline]] inline Halves narrow(Lanes lanes, int at) {
  return __builtin_convertvector(lanes >> at, Halves);
}

// Sixteen lanes of values that a byte holds. For NEON and x86, gcc 12 would take them out lane by lane or in quarters.
[[gnu::always_inline]] inline void store_bytes(const SignedWords* lanes, int8_t* to) {
#if defined(__aarch64__)
  const auto words = [&](int part) { return vmovn_s32(std::bit_cast<int32x4_t>(lanes[part])); };
  const int16x8_t first = vcombine_s16(words(0), words(1)), second = vcombine_s16(words(2), words(3));
  vst1q_s8(to, vcombine_s8(vmovn_s16(first), vmovn_s16(second)));
#elif defined(__AVX512F__)
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm512_cvtepi32_epi8(std::bit_cast<__m512i>(lanes[0])));
#elif defined(__AVX2__)
  const __m256i packed = _mm256_packs_epi32(std::bit_cast<__m256i>(lanes[0]), std::bit_cast<__m256i>(lanes[1]));
  const __m256i words = _mm256_permute4x64_epi64(packed, 0xd8);  // halves of both back to where they belong
  const __m128i bytes = _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), bytes);
#else
  using Lane [[gnu::vector_size(kLanes)]] = int8_t;
  for (int part = 0; part < kParts; ++part) {
    const Lane bytes = __builtin_convertvector(lanes[part], Lane);
    std::memcpy(to + part * kLanes, &bytes, sizeof bytes);
  }
#endif
}

// The same of a piece, kPiece lanes.
[[gnu::always_inline]] inline void store_piece(const SignedWords* lanes, int8_t* to) {
#if defined(__AVX512BW__)
  const auto of = [&](int part) { return std::bit_cast<__m512i>(lanes[part]); };
  const __m512i packed = _mm512_packs_epi16(_mm512_packs_epi32(of(0), of(1)), _mm512_packs_epi32(of(2), of(3)));
  const __m512i in_order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  _mm512_storeu_si512(to, _mm512_permutexvar_epi32(in_order, packed));
#elif defined(__AVX2__)
  const auto of = [&](int part) { return std::bit_cast<__m256i>(lanes[part]); };
  const __m256i in_order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  for (int half = 0; half < 2; ++half) {
    const __m256i first = _mm256_packs_epi32(of(4 * half), of(4 * half + 1));
    const __m256i second = _mm256_packs_epi32(of(4 * half + 2), of(4 * half + 3));
    const __m256i packed = _mm256_packs_epi16(first, second);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to) + half, _mm256_permutevar8x32_epi32(packed, in_order));
  }
#else
  for (int at = 0; at < kPiece; at += kBlockNeurons) store_bytes(lanes + at / kLanes, to + at);
#endif
}

// a * b + c, rounded once; kFused where the instruction set has it.
#if defined(__AVX512F__)
constexpr bool kFused = true;
[[gnu::always_inline]] inline Floats fused(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }
#elif defined(__FMA__)
constexpr bool kFused = true;
[[gnu::always_inline]] inline Floats fused(Floats a, Floats b, Floats c) { return _mm256_fmadd_ps(a, b, c); }
#elif defined(__aarch64__)
constexpr bool kFused = true;
[[gnu::always_inline]] inline Floats fused(Floats a, Floats b, Floats c) { return vfmaq_f32(c, a, b); }
#else
constexpr bool kFused = false;
[[gnu::always_inline]] inline Floats fused(Floats a, Floats b, Floats c) { return a * b + c; }
#endif

// The same with one number for all lanes, which NEON need not copy to them.
[[gnu::always_inline]] inline Floats fused(Floats a, float b, Floats c) {
#if defined(__AVX512F__)
  return _mm512_fmadd_ps(a, _mm512_set1_ps(b), c);
#elif defined(__FMA__)
  return _mm256_fmadd_ps(a, _mm256_set1_ps(b), c);
#elif defined(__aarch64__)
  return vfmaq_n_f32(c, a, b);
#else
  return a * b + c;
#endif
}

// The nearest integers, halves to even, of numbers below 2^22.
[[gnu::always_inline]] inline SignedWords nearest(Floats floats) {
#if defined(__AVX512F__)
  return std::bit_cast<SignedWords>(_mm512_cvtps_epi32(floats));
#elif defined(__AVX2__)
  return std::bit_cast<SignedWords>(_mm256_cvtps_epi32(floats));
#elif defined(__aarch64__)
  return std::bit_cast<SignedWords>(vcvtnq_s32_f32(std::bit_cast<float32x4_t>(floats)));
#else
  constexpr float kWhole = 0x1.8p23f;  // adding which leaves no bits for a fraction
  return std::bit_cast<SignedWords>(floats + kWhole) - std::bit_cast<int32_t>(kWhole);
#endif
}

// fp16 to float without touching a subnormal float32: many machines are slow at those, and users may have them flushed.
// With its exponent rebased, a normal number reads u and a subnormal one, read as if normal, 2u - smallest normal; each
// time it is the lesser of the two.
[[gnu::always_inline]] inline Floats fp16_lanes_to_floats(Halves halves) {
  const Words bits = widen(halves), magnitude = (bits & 0x7fff) << 13;
  const Floats normal = std::bit_cast<Floats>(magnitude + (112u << 23)), subnormal = normal + normal - 0x1p-14f;
  const Words finite = std::bit_cast<Words>(normal < subnormal ? normal : subnormal);
  const Words special = static_cast<Words>(magnitude >= 0x0f800000) & 0x7f800000;  // infinity, NaN
  return std::bit_cast<Floats>(finite | special | (bits & 0x8000) << 16);
}

// For each lane, the one that is `half` lanes away.
template <int half>
struct Across {
  constexpr Across() : lanes() {
    for (int lane = 0; lane < kLanes; ++lane) lanes[lane] = lane ^ half;
  }
  alignas(kSimdBytes) int32_t lanes[kLanes];
};
template <int half>
constexpr Across<half> kAcross;

// What `join` makes of all lanes, in each of them. By halves: a compiler would take one lane after the other out of its
// vector.
template <int half = kLanes / 2, int last = 1, class Lanes, class Join>
[[gnu::always_inline]] inline Lanes joined(Lanes lanes, const Join& join) {
  const Lanes halves = join(lanes, __builtin_shuffle(lanes, load<SignedWords>(kAcross<half>.lanes)));
  if constexpr (half > last) return joined<half / 2, last>(halves, join);
  return halves;
}
[[gnu::always_inline]] inline SignedWords added(SignedWords a, SignedWords b) { return a + b; }
[[gnu::always_inline]] inline SignedWords sum_of(SignedWords lanes) { return joined(lanes, added); }

// Lanes of two vectors in turn, those from `first` on of each.
template <int first>
struct InTurn {
  constexpr InTurn() : lanes() {
    for (int lane = 0; lane < kLanes; ++lane) lanes[lane] = first + lane / 2 + lane % 2 * kLanes;
  }
  alignas(kSimdBytes) int32_t lanes[kLanes];
};
template <int first>
constexpr InTurn<first> kInTurn;

// The same of two vectors: of the first in even lanes, of the second in odd ones.
template <class Lanes, class Join>
[[gnu::always_inline]] inline Lanes joined_in_turn(Lanes one, Lanes two, const Join& join) {
  const Lanes first = __builtin_shuffle(one, two, load<SignedWords>(kInTurn<0>.lanes));
  const Lanes second = __builtin_shuffle(one, two, load<SignedWords>(kInTurn<kLanes / 2>.lanes));
  return joined<kLanes / 2, 2>(join(first, second), join);
}

// The first two lanes.
template <class Lanes, class Number>
[[gnu::always_inline]] inline void store_two(Lanes lanes, Number* to) {
  std::memcpy(to, &lanes, 2 * sizeof(Number));
}
template <class Lanes>
[[gnu::always_inline]] inline Lanes larger(Lanes a, Lanes b) {
  return a > b ? a : b;
}
template <class Lanes>
[[gnu::always_inline]] inline Lanes most_of(Lanes lanes) {
  return joined(lanes, larger<Lanes>);
}

// Calls work<type>() for that type.
template <class Work>
inline auto with_float_type(FloatType type, const Work& work) {
  if (type == FloatType::f32) return work.template operator()<FloatType::f32>();
  if (type == FloatType::bf16) return work.template operator()<FloatType::bf16>();
  return work.template operator()<FloatType::f16>();
}

// `kLanes` activations, of which `count` are there; the others are 0.
template <FloatType type>
[[gnu::always_inline]] inline Floats activations_at(const void* x, int64_t at, int64_t count) {
  using Number = std::conditional_t<type == FloatType::f32, Words, Halves>;
  Number bits = {};
  const uint8_t* from = static_cast<const uint8_t*>(x) + at * static_cast<int64_t>(sizeof(Number) / kLanes);
  if (count >= kLanes) [[likely]] {
    bits = load<Number>(from);
  } else {
    std::memcpy(&bits, from, static_cast<size_t>(most<int64_t>(count, 0)) * sizeof(Number) / kLanes);
  }
  if constexpr (type == FloatType::f16) return fp16_lanes_to_floats(bits);
  if constexpr (type == FloatType::bf16) return std::bit_cast<Floats>(widen(bits) << 16);
  if constexpr (type == FloatType::f32) return std::bit_cast<Floats>(bits);
}

}  // namespace
}  // namespace tilepress
