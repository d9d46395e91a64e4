// What codes stand for, family by family.
//   value(lanes, at): the values of the codes that start at bit `at` of each lane, times unit(), a power of two
//   drops_to_zero(): whether code 0 is 0, so that what was dropped need not be masked
//   covers(codes, count), where there is such: whether all these codes are among those that the family gets right
#pragma once

#include <type_traits>

#include "simd/simd.h"

namespace tilepress {
namespace {

template <bool is_signed>
struct Integers {
  explicit Integers(const Format& format) : unused(32 - format.bits) {}

  template <class Lanes>
  [[gnu::always_inline]] Floats operator()(Lanes lanes, int at) const {
    using Extended = std::conditional_t<is_signed, Int32s, Uint32s>;
    const Extended extended = reinterpret_cast<Extended>(widen(lanes) << (unused - at)) >> unused;
    return int_to_floats(reinterpret_cast<Int32s>(extended));
  }

  static float unit() { return 1; }
  static constexpr bool drops_to_zero() { return true; }

  int unused;
};

// Magnitudes, codes without their sign, up to the first that is not a finite number.
inline int finite_magnitudes(const Format& format) {
  int count = 0;
  while (count < 1 << (format.bits - 1) && format.values[count] - format.values[count] == 0) ++count;
  return count;
}

// At most eight bits with at most five of exponent: fp16 times a power of two, once the fields are in its places.
// Shifted to the top and, with its sign, down again, a code leaves copies of the sign where fp16 has more exponent.
// What lies beside a code is masked away there. Some have their bits and those of their mantissa known beforehand;
// shifts of any number take twice as long.
template <int known_bits = 0, int known_mantissa = 0>
struct Minifloats {
  static bool fit(const Format& format) {
    if (known_bits) return format.bits == known_bits && format.mantissa_bits == known_mantissa;
    return format.bits - 1 - format.mantissa_bits <= 5;
  }

  explicit Minifloats(const Format& format)
      : bits_(format.bits),
        mantissa_(format.mantissa_bits),
        unit_(std::bit_cast<float>(static_cast<uint32_t>(format.min_exponent + 14 + 127) << 23)),
        largest_(static_cast<int8_t>(finite_magnitudes(format) - 1)) {}

  // Whether fp16 has the same numbers for all these codes. It has no NaN for one that uses only part of an exponent, as
  // that of e4m3 does.
  bool covers(const uint8_t* codes, int count) const {
    const auto magnitude = static_cast<int8_t>((1 << (bits() - 1)) - 1);
    if (!down() || largest_ == magnitude) return true;
    SignedBytes beyond = {};
    for (int i = 0; i < count; i += kSimdBytes) beyond |= (load<SignedBytes>(codes + i) & magnitude) > largest_;
    return !reduce_max(std::bit_cast<Uint32s>(beyond));
  }

  template <class Lanes>
  [[gnu::always_inline]] Floats operator()(Lanes lanes, int at) const {
    const auto fields = static_cast<uint16_t>(0x8000 | ((1 << (bits() - 1)) - 1) << (10 - mantissa()));
    const auto top = reinterpret_cast<Int16s>(at_top(lanes, at));
    return fp16_to_floats(reinterpret_cast<Uint16s>(top >> down()) & fields);
  }

  float unit() const { return unit_; }
  static constexpr bool drops_to_zero() { return true; }

 private:
  [[gnu::always_inline]] int bits() const { return known_bits ? known_bits : bits_; }
  [[gnu::always_inline]] int mantissa() const { return known_bits ? known_mantissa : mantissa_; }
  [[gnu::always_inline]] int down() const { return mantissa() + 6 - bits(); }

  // The code at bit `at` to the top of sixteen bits, whatever it has below.
  [[gnu::always_inline]] Uint16s at_top(Uint16s lanes, int at) const { return lanes << (16 - bits() - at); }
  [[gnu::always_inline]] Uint16s at_top(Uint32s lanes, int at) const { return narrow(lanes, at) << (16 - bits()); }

  int bits_, mantissa_;
  float unit_;
  int8_t largest_;  // the greatest magnitude that is finite
};

struct Bf16 {
  [[gnu::always_inline]] Floats operator()(Uint32s lanes, int at) const {
    return std::bit_cast<Floats>(at ? lanes & 0xffff0000 : lanes << 16);
  }
  static float unit() { return 1; }
  static constexpr bool drops_to_zero() { return true; }
};

// Codes of four bits for values that bf16 has, as mxfp4's are: unpacked as such.
template <class Simd>
class Bf16Table : public Bf16 {
 public:
  static bool fit(const Format& format) {
    bool all = format.bits == 4;
    for (int code = 0; code < 16; ++code) all &= std::bit_cast<uint32_t>(format.values[code]) << 16 == 0;
    return all;
  }

  explicit Bf16Table(const Format& format) {
    for (int code = 0; code < 16; ++code) {
      const uint32_t bits = std::bit_cast<uint32_t>(format.values[code]);
      low_[code] = static_cast<uint8_t>(bits >> 16);
      high_[code] = static_cast<uint8_t>(bits >> 24);
    }
  }

  // As many as a vector has bytes.
  [[gnu::always_inline]] void look_up(Bytes codes, uint16_t* values) const {
    Simd::look_up_words(low_, high_, codes, values);
  }

 private:
  alignas(16) uint8_t low_[16], high_[16];
};

struct Fp16 {
  [[gnu::always_inline]] Floats operator()(Uint32s lanes, int at) const { return fp16_to_floats(narrow(lanes, at)); }
  static float unit() { return 1; }
  static constexpr bool drops_to_zero() { return true; }
};

// What all tables have.
struct AnyTable {
  explicit AnyTable(const Format& format) : drops_to_zero_(format.values[0] == 0) {}
  static float unit() { return 1; }
  bool drops_to_zero() const { return drops_to_zero_; }

 private:
  bool drops_to_zero_;
};

struct Table : AnyTable {
  explicit Table(const Format& format) : AnyTable(format), values(format.values) {}

  template <class Lanes>
  [[gnu::always_inline]] Floats operator()(Lanes lanes, int at) const {
    const Uint32s codes = widen(lanes) >> at & 255;
    Floats looked_up;
    for (int lane = 0; lane < kLanes; ++lane) looked_up[lane] = values[codes[lane]];
    return looked_up;
  }

  const float* values;
};

}  // namespace
}  // namespace tilepress
