// Compiled for: portable avx2 avx512
// One row of activations to block floating point as formats/bfp_reference.py does it, straight to its place in a row
// panel.
#include "quantize/block_floats.h"
#include "tilepress/quantize.h"

namespace tilepress {
namespace {

// What 1 stands for, as bits, and its inverse: a power of two such that the highest bit of the largest magnitude counts
// 2^(mantissa - 1).
[[gnu::always_inline]] inline Uint32s unit_of(Uint32s largest, int mantissa) {
  return (largest & 0x7f800000) - (static_cast<uint32_t>(mantissa - 1) << 23);
}
[[gnu::always_inline]] inline Floats inverse_of(Uint32s unit) { return std::bit_cast<Floats>((254u << 23) - unit); }

// The same where values are the nearest: the largest may be rounded to the next power of two, and what is below 2^-100
// keeps fewer bits.
[[gnu::always_inline]] inline Uint32s nearest_unit_of(Uint32s largest, int mantissa) {
  constexpr uint32_t kLeast = std::bit_cast<uint32_t>(0x1p-100f);
  return unit_of(max(largest + (1u << (23 - mantissa)), splat<Uint32s>(kLeast)), mantissa);
}

// A limb of `count`, the highest of which is the first and signed.
[[gnu::always_inline]] inline Int32s limb_of(Int32s values, int limb, int count) {
  return values >> (kLimbBits * (count - 1 - limb)) & (limb ? (1 << kLimbBits) - 1 : -1);
}

// A group of activations as signed integers of `mantissa` bits and a sign, and what 1 stands for.
template <int group>
struct Group {
  static constexpr int kVectors = group / kLanes;

  // `largest` of all magnitudes so far, as bits: what is not finite is largest.
  template <FloatType type>
  [[gnu::always_inline]] void set(const BfpInput& in, int64_t first, Uint32s& largest) {
    Uint32s halves[kVectors], most_half = {};
#pragma GCC unroll 8
    for (int i = 0; i < kVectors; ++i) {
      const int64_t at = first + i * kLanes;
      const Floats floats = load_floats<type>(in.x, at, in.count - at);
      largest = max(largest, magnitude_bits(floats));
      halves[i] = round_magnitudes(magnitude_bits(floats));
      most_half = max(most_half, halves[i]);
      values[i] = std::bit_cast<Int32s>(floats) >> 31;
    }
    const Floats per_unit =
        set_unit(unit_of(max(max_of_lanes(most_half), splat<Uint32s>(kLeastNormalFp16)), in.mantissa));
#pragma GCC unroll 8
    for (int i = 0; i < kVectors; ++i) {
      const Floats magnitudes = std::bit_cast<Floats>(halves[i]) * per_unit;
      values[i] = (truncate_int(magnitudes) ^ values[i]) - values[i];
    }
  }

  // The nearest instead, of at most 20 bits, without a detour by FP16.
  template <FloatType type>
  [[gnu::always_inline]] void set_nearest(const BfpInput& in, int64_t first, Uint32s& largest) {
    Floats floats[kVectors];
    Uint32s mine = {};
#pragma GCC unroll 8
    for (int i = 0; i < kVectors; ++i) {
      const int64_t at = first + i * kLanes;
      floats[i] = load_floats<type>(in.x, at, in.count - at);
      mine = max(mine, magnitude_bits(floats[i]));
    }
    largest = max(largest, mine);
    const Floats per_unit = set_unit(nearest_unit_of(max_of_lanes(mine), in.mantissa));
#pragma GCC unroll 8
    for (int i = 0; i < kVectors; ++i) {
      values[i] = nearest_int(floats[i] * per_unit);
    }
  }

  // Negates values of nine bits of which one is 255 and none -255.
  [[gnu::always_inline]] void avoid_255() {
    Int32s most_values = values[0], least_values = values[0];
    for (int i = 1; i < kVectors; ++i) {
      most_values = max(most_values, values[i]);
      least_values = min(least_values, values[i]);
    }
    if (reduce_max(most_values) < 255 || reduce_max(-least_values) == 255) return;
    for (int i = 0; i < kVectors; ++i) values[i] = -values[i];
    unit = -unit;
  }

  // Of each segment, the sum of its values and what 1 stands for.
  [[gnu::always_inline]] void sum(const BfpInput& in, const BfpOutput& out, int64_t first) const {
    Int32s sums = {};
    if (in.segment == group) {
#pragma GCC unroll 8
      for (int i = 0; i < kVectors; ++i) sums += values[i];
      return set_segment(in, out, first / group, sums);
    }
    for (int64_t i = 0; i < least<int64_t>(group, in.count - first); i += in.segment) {
      for (int64_t j = i; j < i + in.segment; j += kLanes) sums += values[j / kLanes];
      set_segment(in, out, (first + i) / in.segment, sums);
      sums = Int32s{};
    }
  }

  Int32s values[kVectors];
  Floats unit;

 private:
  // Returns its inverse.
  [[gnu::always_inline]] Floats set_unit(Uint32s bits) {
    unit = std::bit_cast<Floats>(bits);
    return inverse_of(bits);
  }

  [[gnu::always_inline]] void set_segment(const BfpInput& in, const BfpOutput& out, int64_t at, Int32s sums) const {
    out.sums[at] = reduce_sum(sums);
    out.units[at] = unit[0] * in.unit;
  }
};

// Sixteen values each from here on.

// Values of nine bits, of which none is 255 unless one is -255, as a sum; `three` has bits where it takes three.
[[gnu::always_inline]] inline void write_addends(const Int32s* values, int8_t* const* to, int64_t place,
                                                 Int32s& three) {
  Int32s addends[3][kBlockVectors];
  for (int part = 0; part < kBlockVectors; ++part) {
    const Int32s half = values[part] >> 1, is_most = values[part] == 255;  // -1 where it is
    addends[0][part] = half;
    addends[1][part] = values[part] - half + is_most;
    addends[2][part] = -is_most;
    three |= is_most;
  }
  for (int i = 0; i < 3; ++i) store_int8x16(addends[i], to[i] + place);
}

[[gnu::always_inline]] inline void write_limbs(const Int32s* values, int count, int8_t* const* to, int64_t place) {
  for (int limb = 0; limb < count; ++limb) {
    Int32s limbs[kBlockVectors];
    for (int part = 0; part < kBlockVectors; ++part) limbs[part] = limb_of(values[part], limb, count);
    store_int8x16(limbs, to[limb] + place);
  }
}

// Values of at most nine bits times what 1 stands for, a power of two: bf16 holds that.
[[gnu::always_inline]] inline void write_words(const Int32s* values, Floats unit, uint16_t* words) {
  for (int part = 0; part < kBlockVectors; ++part) {
    store(narrow(std::bit_cast<Uint32s>(int_to_floats(values[part]) * unit), 16), words + part * kLanes);
  }
}

// As Group::set_nearest, two groups of 32 at a time, of which all values are there: from the first on, in segments of a
// group. Returns how many values those were.
template <FloatType type>
[[gnu::always_inline]] inline int64_t set_nearest_pairs(const BfpInput& in, const BfpOutput& out, int limbs,
                                                        Uint32s& largest) {
  constexpr int kVectors = kPiece / kLanes, kHalf = kVectors / 2;
  int64_t at = 0;
  for (; at + kPiece <= in.count; at += kPiece) {
    Floats floats[kVectors];
    Uint32s most_bits[2] = {};
#pragma GCC unroll 16
    for (int i = 0; i < kVectors; ++i) {
      floats[i] = load_floats<type>(in.x, at + i * kLanes, kLanes);
      most_bits[i / kHalf] = max(most_bits[i / kHalf], magnitude_bits(floats[i]));
    }
    largest = max(largest, max(most_bits[0], most_bits[1]));
    const Uint32s both = reduce_pair(most_bits[0], most_bits[1], max<Uint32s>);
    const Uint32s unit = nearest_unit_of(both, in.mantissa);
    const Floats inverse = inverse_of(unit);
    const Floats per_unit[] = {broadcast_lane<0>(inverse), broadcast_lane<1>(inverse)};
    Int32s values[kVectors], sums[2] = {};
#pragma GCC unroll 16
    for (int i = 0; i < kVectors; ++i) {
      values[i] = nearest_int(floats[i] * per_unit[i / kHalf]);
      sums[i / kHalf] += values[i];
    }
    store<2>(reduce_pair(sums[0], sums[1], add<Int32s>), out.sums + at / in.segment);
    store<2>(std::bit_cast<Floats>(unit) * in.unit, out.units + at / in.segment);
    for (int limb = 0; limb < limbs; ++limb) {
      Int32s places[kVectors];
#pragma GCC unroll 16
      for (int i = 0; i < kVectors; ++i) places[i] = limb_of(values[i], limb, limbs);
      store_int8x64(places, out.limbs[limb] + at / kPiece * out.piece_stride);
    }
  }
  return at;
}

// Arguments by value: stores of bytes may alias what a reference refers to.
template <FloatType type, int group, bool nearest>
inline int quantize_groups(BfpInput in, BfpOutput out) {
  constexpr uint32_t kTooLarge = nearest ? std::bit_cast<uint32_t>(kMostNearest) : 0x7f800000;
  const int limbs = limbs_of(in.mantissa);
  Uint32s largest = {};
  Int32s three = {};
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
      const Int32s* values = all.values + part * kBlockVectors;
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
  if (reduce_max(largest) >= kTooLarge) return 0;
  return in.addends ? 2 + (reduce_max(-three) > 0) : limbs;
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
