// What codes stand for, family by family: value(lanes, at) gives the values of the codes that start at bit `at` of each
// lane. In a nameless namespace for the reason that pack_block.h gives.
#pragma once

#include <type_traits>

#include "kernels/lanes.h"

namespace tilepress {
namespace {

template <bool is_signed>
struct Integers {
  explicit Integers(const Format& format) : unused(32 - format.bits) {}

  template <class Lanes>
  [[gnu::always_inline]] Floats operator()(Lanes lanes, int at) const {
    using Extended = std::conditional_t<is_signed, SignedWords, Words>;
    const Extended extended = reinterpret_cast<Extended>(widen(lanes) << (unused - at)) >> unused;
    return __builtin_convertvector(reinterpret_cast<SignedWords>(extended), Floats);
  }

  int unused;
};

// Magnitudes, codes without their sign, up to the first that is not a finite number.
inline int finite_magnitudes(const Format& format) {
  int count = 0;
  while (count < 1 << (format.bits - 1) && format.values[count] - format.values[count] == 0) ++count;
  return count;
}

// At most eight bits with at most five of exponent, so fp16 once the fields are in its places, but for a power of two.
// Shifted to the top and, with its sign, down again, a code leaves copies of the sign where fp16 has more exponent.
template <class Simd>
struct Minifloats {
  static bool fit(const Format& format) { return format.bits - 1 - format.mantissa_bits <= 5; }

  explicit Minifloats(const Format& format)
      : unused(16 - format.bits),
        down(format.mantissa_bits + 6 - format.bits),
        fields(static_cast<uint16_t>(0x8000 | ((1 << (format.bits - 1)) - 1) << (10 - format.mantissa_bits))),
        unit(std::bit_cast<float>(static_cast<uint32_t>(format.min_exponent + 14 + 127) << 23)),
        magnitude(static_cast<int8_t>((1 << (format.bits - 1)) - 1)),
        largest(static_cast<int8_t>(finite_magnitudes(format) - 1)) {}

  // Whether fp16 has the same numbers for all these codes. It has no NaN for one that uses only part of an exponent, as
  // that of e4m3 does.
  bool covers(const uint8_t* codes, int count) const {
    if (!down || largest == magnitude) return true;
    SignedBytes found = {};
    for (int i = 0; i < count; i += kSimdBytes) found |= (load<SignedBytes>(codes + i) & magnitude) > largest;
    const Words words = reinterpret_cast<Words>(found);
    uint32_t any = 0;
    for (int lane = 0; lane < kLanes; ++lane) any |= words[lane];
    return !any;
  }

  template <class Lanes>
  [[gnu::always_inline]] Floats operator()(Lanes lanes, int at) const {
    const Halves top = narrow(lanes, at) << unused;
    const Halves placed = reinterpret_cast<Halves>(reinterpret_cast<SignedHalves>(top) >> down) & fields;
    return Simd::to_floats(placed) * unit;
  }

  int unused, down;
  uint16_t fields;
  float unit;
  int8_t magnitude, largest;  // the bits of a magnitude, and the greatest that is finite
};

struct Bf16 {
  [[gnu::always_inline]] Floats operator()(Words lanes, int at) const {
    return std::bit_cast<Floats>((lanes << (16 - at)) & 0xffff0000);
  }
};

template <class Simd>
struct Fp16 {
  [[gnu::always_inline]] Floats operator()(Words lanes, int at) const { return Simd::to_floats(narrow(lanes, at)); }
};

struct Table {
  explicit Table(const Format& format) : values(format.values) {}

  template <class Lanes>
  [[gnu::always_inline]] Floats operator()(Lanes lanes, int at) const {
    const Words codes = widen(lanes) >> at & 255;
    Floats found;
    for (int lane = 0; lane < kLanes; ++lane) found[lane] = values[codes[lane]];
    return found;
  }

  const float* values;
};

}  // namespace
}  // namespace tilepress
