// Vectors as wide as a register of the instruction set that a file is compiled for: what generic kernels are written
// with. simd_test.cc tests every operation on every instruction set against plain loops.
//
// Types. They are GNU vectors: + - * / & | ^ << >> == < ?: work lane by lane.
//   Floats, Int32s, Uint32s                kLanes numbers, a whole register
//   Int16s, Uint16s, Uint8s                kLanes numbers, a half or a quarter of a register
//   Vector<T>                              a whole register of T; of uint8_t: Bytes, of int8_t: SignedBytes
//   ByteVector                             kVectorBytes bytes, one register or several
//
// Memory, at any address.
//   load<V>(from)                          any vector
//   load<V>(from, count)                   its first `count` numbers, at most all, and 0 for the rest
//   load_floats<type>(from)                float32, bf16 or fp16 as Floats
//   load_floats<type>(from, first, count)  from number `first` on; `count` as load has it
//   with_float_type(type, work)            calls `work` with that type as its template argument
//   store(v, to)                           any vector
//   store<count>(v, to)                    its first `count` numbers
//   store_int8x16(v, to)                   16 int32, which int8 holds, as int8
//   store_int8x64(v, to)                   64 of them
//   store_uint8x16(v, to)                  the low bytes of 16 uint32
//
// Numbers.
//   splat<V>(x)                            x in every lane
//   min(a, b), max(a, b)                   b where one of them is NaN
//   fma(a, b, c)                           a * b + c, rounded once if kHasFma, else twice; b may be a float
//   nearest_int(x)                         ties to even, of magnitudes below 2^22
//   truncate_int(x)                        towards 0, of magnitudes below 2^31
//   int_to_floats(v)                       int32 to float32, ties to even
//   magnitude_bits(x)                      the bits of |x|: ordered as magnitudes are, infinity and NaN last
//
// Conversions.
//   widen(v)                               Uint8s or Uint16s to Uint32s
//   narrow(v, at)                          bits `at` to `at` + 15 of each uint32, as Uint16s
//   bf16_to_floats(v), fp16_to_floats(v), to_floats<type>(v)
//   to_bf16(x), to_fp16(x)                 the nearest, ties to even, overflowing to infinity; NaN stays NaN
//
// Lanes.
//   broadcast_lane<i>(v)                   lane i in every lane
//   interleave<first>(a, b)                lanes of a and b in turn, from lane `first` of each on
//   reduce_lanes(v, op)                    op of all lanes, in every lane
//   reduce_lanes<period>(v, op)            op of all lanes with the same index modulo `period`, a power of two
//   reduce_pair(a, b, op)                  op of all lanes of a in even lanes, of b in odd ones
//   max_of_lanes(v)                        the maximum, in every lane
//   reduce_max(v)                          the maximum
//   any(mask)                              whether a lane is -1, not 0
//   compress(v, mask, to)                  stores the lanes whose mask is -1, not 0, one after the other; returns how
//   many
//                                          there are. What comes after them, up to a whole vector, is overwritten
//   reduce_sum(v)                          the sum; of floats, neighbours are added first, then their sums in order
//   add(a, b), bit_or(a, b)                an `op`, as max is
#pragma once

#if defined(__aarch64__)
#include <arm_neon.h>
#elif defined(__AVX2__)
#include <immintrin.h>
#endif

#include <bit>
#include <cstring>
#include <type_traits>

#include "tilepress/format.h"

namespace tilepress {
namespace {

#if defined(__AVX512F__)
constexpr int kSimdBytes = 64;
#elif defined(__AVX2__)
constexpr int kSimdBytes = 32;
#else
constexpr int kSimdBytes = 16;
#endif
constexpr int kLanes = kSimdBytes / 4;
constexpr int kBlockVectors = kBlockNeurons / kLanes;  // vectors that hold one number of each neuron of a block

template <class Number, int bytes>
struct VectorOf {
  using Type [[gnu::vector_size(bytes)]] = Number;
};
template <class Number>
using Vector = typename VectorOf<Number, kSimdBytes>::Type;
template <class Number>
using Lanes = typename VectorOf<Number, kLanes* static_cast<int>(sizeof(Number))>::Type;

using Floats = Lanes<float>;
using Int32s = Lanes<int32_t>;
using Uint32s = Lanes<uint32_t>;
using Int16s = Lanes<int16_t>;
using Uint16s = Lanes<uint16_t>;
using Uint8s = Lanes<uint8_t>;
using Bytes = Vector<uint8_t>;
using SignedBytes = Vector<int8_t>;
using ByteVector = typename VectorOf<uint8_t, kVectorBytes>::Type;

#define TILEPRESS_INLINE [[gnu::always_inline]] inline

// ---- Memory

template <class V>
TILEPRESS_INLINE V load(const void* from) {
  V vector;
  std::memcpy(&vector, from, sizeof(vector));
  return vector;
}

template <class V>
TILEPRESS_INLINE V load(const void* from, int64_t count) {
  constexpr int64_t kAll = sizeof(V) / sizeof(V{}[0]);
  if (count >= kAll) [[likely]]
    return load<V>(from);
  V vector = {};
  std::memcpy(&vector, from, static_cast<size_t>(count > 0 ? count : 0) * sizeof(vector[0]));
  return vector;
}

template <class V, class Number>
TILEPRESS_INLINE void store(V vector, Number* to) {
  std::memcpy(to, &vector, sizeof(vector));
}

template <int count, class V, class Number>
TILEPRESS_INLINE void store(V vector, Number* to) {
  std::memcpy(to, &vector, count * sizeof(vector[0]));
}

// For NEON and x86, gcc 12 would take bytes out lane by lane or in quarters.
TILEPRESS_INLINE void store_int8x16(const Int32s* lanes, int8_t* to) {
#if defined(__aarch64__)
  const auto words = [&](int i) { return vmovn_s32(std::bit_cast<int32x4_t>(lanes[i])); };
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
  for (int i = 0; i < kBlockVectors; ++i) store(__builtin_convertvector(lanes[i], Lanes<int8_t>), to + i * kLanes);
#endif
}

TILEPRESS_INLINE void store_int8x64(const Int32s* lanes, int8_t* to) {
#if defined(__AVX512BW__)
  const auto of = [&](int i) { return std::bit_cast<__m512i>(lanes[i]); };
  const __m512i packed = _mm512_packs_epi16(_mm512_packs_epi32(of(0), of(1)), _mm512_packs_epi32(of(2), of(3)));
  const __m512i in_order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  _mm512_storeu_si512(to, _mm512_permutexvar_epi32(in_order, packed));
#elif defined(__AVX2__)
  const auto of = [&](int i) { return std::bit_cast<__m256i>(lanes[i]); };
  const __m256i in_order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  for (int half = 0; half < 2; ++half) {
    const __m256i first = _mm256_packs_epi32(of(4 * half), of(4 * half + 1));
    const __m256i second = _mm256_packs_epi32(of(4 * half + 2), of(4 * half + 3));
    const __m256i packed = _mm256_packs_epi16(first, second);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to) + half, _mm256_permutevar8x32_epi32(packed, in_order));
  }
#else
  for (int at = 0; at < 64; at += 16) store_int8x16(lanes + at / kLanes, to + at);
#endif
}

TILEPRESS_INLINE void store_uint8x16(const Uint32s* lanes, uint8_t* to) {
  Int32s bytes[kBlockVectors];  // as if they were signed
  for (int i = 0; i < kBlockVectors; ++i) bytes[i] = std::bit_cast<Int32s>(lanes[i] << 24) >> 24;
  store_int8x16(bytes, reinterpret_cast<int8_t*>(to));
}

// ---- Numbers

// Less zero, not plus: that keeps the sign of -0.
template <class V, class Number>
TILEPRESS_INLINE V splat(Number x) {
  return x - V{};
}

template <class V>
TILEPRESS_INLINE V min(V a, V b) {
  return a < b ? a : b;
}

template <class V>
TILEPRESS_INLINE V max(V a, V b) {
  return a > b ? a : b;
}

#if defined(__AVX512F__)
constexpr bool kHasFma = true;
TILEPRESS_INLINE Floats fma(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }
TILEPRESS_INLINE Floats fma(Floats a, float b, Floats c) { return _mm512_fmadd_ps(a, _mm512_set1_ps(b), c); }
#elif defined(__FMA__)
constexpr bool kHasFma = true;
TILEPRESS_INLINE Floats fma(Floats a, Floats b, Floats c) { return _mm256_fmadd_ps(a, b, c); }
TILEPRESS_INLINE Floats fma(Floats a, float b, Floats c) { return _mm256_fmadd_ps(a, _mm256_set1_ps(b), c); }
#elif defined(__aarch64__)
constexpr bool kHasFma = true;
TILEPRESS_INLINE Floats fma(Floats a, Floats b, Floats c) { return vfmaq_f32(c, a, b); }
TILEPRESS_INLINE Floats fma(Floats a, float b, Floats c) { return vfmaq_n_f32(c, a, b); }
#else
constexpr bool kHasFma = false;
TILEPRESS_INLINE Floats fma(Floats a, Floats b, Floats c) { return a * b + c; }
TILEPRESS_INLINE Floats fma(Floats a, float b, Floats c) { return a * b + c; }
#endif

TILEPRESS_INLINE Int32s nearest_int(Floats x) {
#if defined(__AVX512F__)
  return std::bit_cast<Int32s>(_mm512_cvtps_epi32(x));
#elif defined(__AVX2__)
  return std::bit_cast<Int32s>(_mm256_cvtps_epi32(x));
#elif defined(__aarch64__)
  return std::bit_cast<Int32s>(vcvtnq_s32_f32(std::bit_cast<float32x4_t>(x)));
#else
  constexpr float kWhole = 0x1.8p23f;  // adding which leaves no bits for a fraction
  return std::bit_cast<Int32s>(x + kWhole) - std::bit_cast<int32_t>(kWhole);
#endif
}

TILEPRESS_INLINE Int32s truncate_int(Floats x) { return __builtin_convertvector(x, Int32s); }
TILEPRESS_INLINE Floats int_to_floats(Int32s lanes) { return __builtin_convertvector(lanes, Floats); }
TILEPRESS_INLINE Uint32s magnitude_bits(Floats x) { return std::bit_cast<Uint32s>(x) & 0x7fffffff; }

// ---- Conversions

// For NEON and x86, gcc 12 would convert some lane by lane, others half by half.
TILEPRESS_INLINE Uint32s widen(Uint32s lanes) { return lanes; }
TILEPRESS_INLINE Uint32s widen(Uint16s lanes) {
#if defined(__aarch64__)
  return std::bit_cast<Uint32s>(vmovl_u16(std::bit_cast<uint16x4_t>(lanes)));
#elif defined(__AVX512F__)
  return std::bit_cast<Uint32s>(_mm512_cvtepu16_epi32(std::bit_cast<__m256i>(lanes)));
#else
  return __builtin_convertvector(lanes, Uint32s);
#endif
}

TILEPRESS_INLINE Uint32s widen(Uint8s lanes) {
#if defined(__AVX512F__)
  return std::bit_cast<Uint32s>(_mm512_cvtepu8_epi32(std::bit_cast<__m128i>(lanes)));
#elif defined(__AVX2__)
  return std::bit_cast<Uint32s>(_mm256_cvtepu8_epi32(_mm_cvtsi64_si128(std::bit_cast<int64_t>(lanes))));
#else
  return __builtin_convertvector(lanes, Uint32s);
#endif
}

TILEPRESS_INLINE Uint16s narrow(Uint32s lanes, int at) { return __builtin_convertvector(lanes >> at, Uint16s); }

TILEPRESS_INLINE Floats bf16_to_floats(Uint16s lanes) { return std::bit_cast<Floats>(widen(lanes) << 16); }

// Without an instruction for it, and without touching a subnormal float32, at which many machines are slow: with its
// exponent rebased, a normal number reads u and a subnormal one, read as if normal, 2u - smallest normal; each time it
// is the lesser of the two.
TILEPRESS_INLINE Floats fp16_to_floats(Uint16s lanes) {
#if defined(__AVX512F__)
  return _mm512_cvtph_ps(std::bit_cast<__m256i>(lanes));
#elif defined(__F16C__)
  return _mm256_cvtph_ps(std::bit_cast<__m128i>(lanes));
#elif defined(__aarch64__)
  return vcvt_f32_f16(std::bit_cast<float16x4_t>(lanes));
#else
  const Uint32s bits = widen(lanes), magnitude = (bits & 0x7fff) << 13;
  const Floats normal = std::bit_cast<Floats>(magnitude + (112u << 23)), subnormal = normal + normal - 0x1p-14f;
  const Uint32s special = static_cast<Uint32s>(magnitude >= 0x0f800000) & 0x7f800000;  // infinity, NaN
  return std::bit_cast<Floats>(std::bit_cast<Uint32s>(min(normal, subnormal)) | special | (bits & 0x8000) << 16);
#endif
}

TILEPRESS_INLINE Uint16s to_bf16(Floats x) {
  const Uint32s bits = std::bit_cast<Uint32s>(x), rounded = bits + 0x7fff + (bits >> 16 & 1);
  return narrow(magnitude_bits(x) > 0x7f800000 ? splat<Uint32s>(0x7fc00000u) : rounded, 16);
}

// Without an instruction for it: adding a power of two whose last place is that of the result rounds as it should be.
TILEPRESS_INLINE Uint16s to_fp16(Floats x) {
#if defined(__AVX512F__)
  return std::bit_cast<Uint16s>(_mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
#elif defined(__F16C__)
  return std::bit_cast<Uint16s>(_mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
#elif defined(__aarch64__)
  return std::bit_cast<Uint16s>(vcvt_f16_f32(x));
#else
  constexpr uint32_t kLowest = 127 - 14, kMissing = 23 - 10;  // exponent of the least normal number; bits of mantissa
  constexpr uint32_t kTooLarge = (127 + 16) << 23;            // 65536, which has the code of infinity
  const Uint32s magnitude = magnitude_bits(x), finite = min(magnitude, splat<Uint32s>(kTooLarge));
  const Uint32s exponent = max(finite >> 23, splat<Uint32s>(kLowest)), anchor = (exponent + kMissing) << 23;
  const Uint32s sum = std::bit_cast<Uint32s>(std::bit_cast<Floats>(finite) + std::bit_cast<Floats>(anchor));
  const Uint32s sign = std::bit_cast<Uint32s>(x) >> 16 & 0x8000;
  const Uint32s code = ((exponent - kLowest) << 10) + (sum - anchor);
  return narrow(sign | (magnitude > 0x7f800000 ? splat<Uint32s>(0x7e00u) : code), 0);
#endif
}

// What one number of a type is stored as.
template <FloatType type>
using Stored = std::conditional_t<type == FloatType::f32, float, uint16_t>;

template <FloatType type>
TILEPRESS_INLINE Floats to_floats(Lanes<Stored<type>> lanes) {
  if constexpr (type == FloatType::f16) return fp16_to_floats(lanes);
  if constexpr (type == FloatType::bf16) return bf16_to_floats(lanes);
  if constexpr (type == FloatType::f32) return lanes;
}

template <FloatType type>
TILEPRESS_INLINE Floats load_floats(const void* from) {
  return to_floats<type>(load<Lanes<Stored<type>>>(from));
}
template <FloatType type>
TILEPRESS_INLINE Floats load_floats(const void* from, int64_t first, int64_t count) {
  return to_floats<type>(load<Lanes<Stored<type>>>(static_cast<const Stored<type>*>(from) + first, count));
}

// Calls work<type>() for that type.
template <class Work>
inline auto with_float_type(FloatType type, const Work& work) {
  if (type == FloatType::f32) return work.template operator()<FloatType::f32>();
  if (type == FloatType::bf16) return work.template operator()<FloatType::bf16>();
  return work.template operator()<FloatType::f16>();
}

// ---- Lanes

// Indices for __builtin_shuffle.
template <class Index>
struct Indices {
  constexpr explicit Indices(Index index) : lanes() {
    for (int lane = 0; lane < kLanes; ++lane) lanes[lane] = index(lane);
  }
  alignas(kSimdBytes) int32_t lanes[kLanes];
};

template <int from, class V>
TILEPRESS_INLINE V broadcast_lane(V vector) {
  return __builtin_shuffle(vector, splat<Int32s>(from));
}

template <int first, class V>
TILEPRESS_INLINE V interleave(V a, V b) {
  static constexpr Indices kInTurn([](int lane) { return first + lane / 2 + lane % 2 * kLanes; });
  return __builtin_shuffle(a, b, load<Int32s>(kInTurn.lanes));
}

// By halves: a compiler would take one lane after the other out of its vector.
template <int period = 1, int half = kLanes / 2, class V, class Op>
TILEPRESS_INLINE V reduce_lanes(V vector, const Op& op) {
  if constexpr (half < period) {
    return vector;
  } else {
    static constexpr Indices kAcross([](int lane) { return lane ^ half; });
    return reduce_lanes<period, half / 2>(op(vector, __builtin_shuffle(vector, load<Int32s>(kAcross.lanes))), op);
  }
}

template <class V, class Op>
TILEPRESS_INLINE V reduce_pair(V a, V b, const Op& op) {
  return reduce_lanes<2>(op(interleave<0>(a, b), interleave<kLanes / 2>(a, b)), op);
}

template <class V>
TILEPRESS_INLINE V add(V a, V b) {
  return a + b;
}

template <class V>
TILEPRESS_INLINE V bit_or(V a, V b) {
  return a | b;
}

template <class V>
TILEPRESS_INLINE V max_of_lanes(V vector) {
  return reduce_lanes(vector, max<V>);
}

template <class V>
TILEPRESS_INLINE auto reduce_max(V vector) {
  return max_of_lanes(vector)[0];
}

TILEPRESS_INLINE int32_t reduce_sum(Int32s lanes) { return reduce_lanes(lanes, add<Int32s>)[0]; }

TILEPRESS_INLINE float reduce_sum(Floats lanes) {
  float sum = 0;
  for (int i = 0; i < kLanes; i += 2) sum += lanes[i] + lanes[i + 1];
  return sum;
}

TILEPRESS_INLINE bool any(Int32s mask) {
#if defined(__AVX512F__)
  return _mm512_movepi32_mask(std::bit_cast<__m512i>(mask));
#elif defined(__AVX2__)
  return _mm256_movemask_ps(std::bit_cast<__m256>(mask));
#else
  return reduce_lanes(mask, bit_or<Int32s>)[0];
#endif
}

TILEPRESS_INLINE int64_t compress(Floats lanes, Int32s mask, float* to) {
#if defined(__AVX512F__)
  const __mmask16 set = _mm512_movepi32_mask(std::bit_cast<__m512i>(mask));
  _mm512_storeu_ps(to, _mm512_maskz_compress_ps(set, lanes));
  return std::popcount(uint32_t{set});
#else
  int64_t count = 0;
  for (int i = 0; i < kLanes; ++i) {
    to[count] = lanes[i];
    count -= mask[i];
  }
  return count;
#endif
}

}  // namespace
}  // namespace tilepress
