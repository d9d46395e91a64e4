// Compiled for: portable avx2 avx512
// A row of activations as block floating point, what formats/bfp_reference.py makes of it, straight to its places.
#include "simd/lanes.h"

namespace tilepress {
namespace {

// Bits of magnitudes rounded to FP16, nearest even, saturating: adding a power of two that has no place for more bits
// than FP16 keeps makes the addition do the rounding.
[[gnu::always_inline]] inline Words to_fp16(Words magnitudes) {
  constexpr uint32_t kMax = std::bit_cast<uint32_t>(65504.0f), kLeastNormal = std::bit_cast<uint32_t>(0x1p-14f);
  const Words finite = magnitudes < kMax ? magnitudes : Words{} + kMax;
  const Words power = larger(finite, Words{} + kLeastNormal) & 0x7f800000;
  const Floats anchor = std::bit_cast<Floats>(power + (13u << 23));
  return std::bit_cast<Words>((std::bit_cast<Floats>(finite) + anchor) - anchor);
}

// What 1 stands for, as bits, and its inverse: a power of two such that the highest bit of the largest magnitude counts
// 2^(mantissa - 1).
[[gnu::always_inline]] inline Words unit_of(Words largest, int mantissa) {
  return (largest & 0x7f800000) - (static_cast<uint32_t>(mantissa - 1) << 23);
}
[[gnu::always_inline]] inline Floats inverse_of(Words unit) { return std::bit_cast<Floats>((254u << 23) - unit); }

// The same where values are the nearest: the largest may be rounded to the next power of two, and what is below 2^-100
// keeps fewer bits.
[[gnu::always_inline]] inline Words nearest_unit_of(Words largest, int mantissa) {
  constexpr uint32_t kLeast = std::bit_cast<uint32_t>(0x1p-100f);
  return unit_of(larger(largest + (1u << (23 - mantissa)), Words{} + kLeast), mantissa);
}

// A limb of `count`, the highest of which is the first and signed.
[[gnu::always_inline]] inline SignedWords limb_of(SignedWords values, int limb, int count) {
  return values >> (kLimbBits * (count - 1 - limb)) & (limb ? (1 << kLimbBits) - 1 : -1);
}

// A group of activations as signed integers of `mantissa` bits and a sign, and what 1 stands for.
template <int group>
struct Group {
  static constexpr int kVectors = group / kLanes;

  // `largest` of all magnitudes so far, as bits: what is not finite is largest.
  template <FloatType type>
  [[gnu::always_inline]] void set(const BfpInput& in, int64_t first, Words& largest) {
    constexpr uint32_t kLeastNormal = std::bit_cast<uint32_t>(0x1p-14f);
    Words halves[kVectors], most_half = {};
#pragma GCC unroll 8
    for (int i = 0; i < kVectors; ++i) {
      const int64_t at = first + i * kLanes;
      const Words bits = std::bit_cast<Words>(activations_at<type>(in.x, at, in.count - at));
      const Words magnitudes = bits & 0x7fffffff;
      largest = larger(largest, magnitudes);
      halves[i] = to_fp16(magnitudes);
      most_half = larger(most_half, halves[i]);
      values[i] = std::bit_cast<SignedWords>(bits) >> 31;
    }
    const Floats per_unit = set_unit(unit_of(larger(most_of(most_half), Words{} + kLeastNormal), in.mantissa));
#pragma GCC unroll 8
    for (int i = 0; i < kVectors; ++i) {
      const Floats magnitudes = std::bit_cast<Floats>(halves[i]) * per_unit;
      values[i] = (__builtin_convertvector(magnitudes, SignedWords) ^ values[i]) - values[i];
    }
  }

  // The nearest instead, of at most 20 bits, without a detour by FP16.
  template <FloatType type>
  [[gnu::always_inline]] void set_nearest(const BfpInput& in, int64_t first, Words& largest) {
    Floats floats[kVectors];
    Words mine = {};
#pragma GCC unroll 8
    for (int i = 0; i < kVectors; ++i) {
      const int64_t at = first + i * kLanes;
      floats[i] = activations_at<type>(in.x, at, in.count - at);
      mine = larger(mine, std::bit_cast<Words>(floats[i]) & 0x7fffffff);
    }
    largest = larger(largest, mine);
    const Floats per_unit = set_unit(nearest_unit_of(most_of(mine), in.mantissa));
#pragma GCC unroll 8
    for (int i = 0; i < kVectors; ++i) {
      values[i] = nearest(floats[i] * per_unit);
    }
  }

  // Negates values of nine bits of which one is 255 and none -255.
  [[gnu::always_inline]] void avoid_255() {
    SignedWords most_values = values[0], least_values = values[0];
    for (int i = 1; i < kVectors; ++i) {
      most_values = larger(most_values, values[i]);
      least_values = values[i] < least_values ? values[i] : least_values;
    }
    if (most_of(most_values)[0] < 255 || most_of(-least_values)[0] == 255) return;
    for (int i = 0; i < kVectors; ++i) values[i] = -values[i];
    unit = -unit;
  }

  // Of each segment, the sum of its values and what 1 stands for.
  [[gnu::always_inline]] void sum(const BfpInput& in, const BfpOutput& out, int64_t first) const {
    SignedWords sums = {};
    if (in.segment == group) {
#pragma GCC unroll 8
      for (int i = 0; i < kVectors; ++i) sums += values[i];
      return set_segment(in, out, first / group, sums);
    }
    for (int64_t i = 0; i < least<int64_t>(group, in.count - first); i += in.segment) {
      for (int64_t j = i; j < i + in.segment; j += kLanes) sums += values[j / kLanes];
      set_segment(in, out, (first + i) / in.segment, sums);
      sums = SignedWords{};
    }
  }

  SignedWords values[kVectors];
  Floats unit;

 private:
  // Returns its inverse.
  [[gnu::always_inline]] Floats set_unit(Words bits) {
    unit = std::bit_cast<Floats>(bits);
    return inverse_of(bits);
  }

  [[gnu::always_inline]] void set_segment(const BfpInput& in, const BfpOutput& out, int64_t at,
                                          SignedWords sums) const {
    out.sums[at] = sum_of(sums)[0];
    out.units[at] = unit[0] * in.unit;
  }
};

// Sixteen values each from here on.

// Values of nine bits, of which none is 255 unless one is -255, as a sum; `three` has bits where it takes three.
[[gnu::always_inline]] inline void write_addends(const SignedWords* values, int8_t* const* to, int64_t place,
                                                 SignedWords& three) {
  SignedWords addends[3][kParts];
  for (int part = 0; part < kParts; ++part) {
    const SignedWords half = values[part] >> 1, is_most = values[part] == 255;  // -1 where it is
    addends[0][part] = half;
    addends[1][part] = values[part] - half + is_most;
    addends[2][part] = -is_most;
    three |= is_most;
  }
  for (int i = 0; i < 3; ++i) store_bytes(addends[i], to[i] + place);
}

[[gnu::always_inline]] inline void write_limbs(const SignedWords* values, int count, int8_t* const* to, int64_t place) {
  for (int limb = 0; limb < count; ++limb) {
    SignedWords limbs[kParts];
    for (int part = 0; part < kParts; ++part) limbs[part] = limb_of(values[part], limb, count);
    store_bytes(limbs, to[limb] + place);
  }
}

// Values of at most nine bits times what 1 stands for, a power of two: bf16 holds that.
[[gnu::always_inline]] inline void write_words(const SignedWords* values, Floats unit, uint16_t* words) {
  for (int part = 0; part < kParts; ++part) {
    const Floats floats = __builtin_convertvector(values[part], Floats) * unit;
    const Halves halves = narrow(std::bit_cast<Words>(floats), 16);
    std::memcpy(words + part * kLanes, &halves, sizeof halves);
  }
}

// As Group::set_nearest, two groups of 32 at a time, of which all values are there: from the first on, in segments of a
// group. Returns how many values those were.
template <FloatType type>
[[gnu::always_inline]] inline int64_t set_nearest_pairs(const BfpInput& in, const BfpOutput& out, int limbs,
                                                        Words& largest) {
  constexpr int kVectors = kPiece / kLanes, kHalf = kVectors / 2;
  const SignedWords first_lane = {}, second_lane = first_lane + 1;
  int64_t at = 0;
  for (; at + kPiece <= in.count; at += kPiece) {
    Floats floats[kVectors];
    Words most_bits[2] = {};
#pragma GCC unroll 16
    for (int i = 0; i < kVectors; ++i) {
      floats[i] = activations_at<type>(in.x, at + i * kLanes, kLanes);
      most_bits[i / kHalf] = larger(most_bits[i / kHalf], std::bit_cast<Words>(floats[i]) & 0x7fffffff);
    }
    largest = larger(largest, larger(most_bits[0], most_bits[1]));
    const Words both = joined_in_turn(most_bits[0], most_bits[1], larger<Words>);
    const Words unit = nearest_unit_of(both, in.mantissa);
    const Floats inverse = inverse_of(unit);
    const Floats per_unit[] = {__builtin_shuffle(inverse, first_lane), __builtin_shuffle(inverse, second_lane)};
    SignedWords values[kVectors], sums[2] = {};
#pragma GCC unroll 16
    for (int i = 0; i < kVectors; ++i) {
      values[i] = nearest(floats[i] * per_unit[i / kHalf]);
      sums[i / kHalf] += values[i];
    }
    store_two(joined_in_turn(sums[0], sums[1], added), out.sums + at / in.segment);
    store_two(std::bit_cast<Floats>(unit) * in.unit, out.units + at / in.segment);
    for (int limb = 0; limb < limbs; ++limb) {
      SignedWords places[kVectors];
#pragma GCC unroll 16
      for (int i = 0; i < kVectors; ++i) places[i] = limb_of(values[i], limb, limbs);
      store_piece(places, out.limbs[limb] + at / kPiece * out.piece_stride);
    }
  }
  return at;
}

// By value: stores of bytes could be thought to change what is referred to.
template <FloatType type, int group, bool nearest>
inline int quantize_groups(BfpInput in, BfpOutput out) {
  constexpr uint32_t kTooLarge = nearest ? std::bit_cast<uint32_t>(kMostNearest) : 0x7f800000;
  const int limbs = limbs_of(in.mantissa);
  Words largest = {};
  SignedWords three = {};
  int64_t first = 0;
  if constexpr (nearest) {
    if (in.segment == group && !out.words && !in.addends) first = set_nearest_pairs<type>(in, out, limbs, largest);
  }
  for (; first < out.padded; first += group) {
    Group<group> all;
    if constexpr (nearest) {
      all.template set_nearest<type>(in, first, largest);
    } else {
      all.template set<type>(in, first, largest);
    }
    if (in.addends) all.avoid_255();
    if (first < in.count) all.sum(in, out, first);
#pragma GCC unroll 2
    for (int part = 0; part < group / kBlockNeurons; ++part) {
      const int64_t at = first + part * kBlockNeurons, place = at / kPiece * out.piece_stride + at % kPiece;
      const SignedWords* values = all.values + part * kParts;
      if (at >= out.padded) break;
      if (out.words) {
        write_words(values, all.unit, out.words + at / kWordPiece * out.piece_stride + at % kWordPiece);
      } else if (in.addends) {
        write_addends(values, out.limbs, place, three);
      } else {
        write_limbs(values, limbs, out.limbs, place);
      }
    }
  }
  if (most_of(largest)[0] >= kTooLarge) return 0;
  return in.addends ? 2 + (most_of(-three)[0] > 0) : limbs;
}

template <FloatType type>
inline int quantize_as(const BfpInput& in, const BfpOutput& out) {
  if (in.nearest) return quantize_groups<type, 32, true>(in, out);
  if (in.group == 16) return quantize_groups<type, 16, false>(in, out);
  if (in.group == 32) return quantize_groups<type, 32, false>(in, out);
  if (in.group == 64) return quantize_groups<type, 64, false>(in, out);
  return quantize_groups<type, 128, false>(in, out);
}

int quantize_bfp_fp(const BfpInput& in, const BfpOutput& out) {
  return with_float_type(in.type, [&]<FloatType type>() { return quantize_as<type>(in, out); });
}

TILEPRESS_KERNEL(quantize_bfp_fp);

}  // namespace
}  // namespace tilepress
