// A token's key and values as integers under shared exponents, and both cut to fewer bits, as kv.h lays them out.
#pragma once

#include "quantize/block_floats.h"
#include "simd/lanes.h"
#include "tilepress/kv.h"

namespace tilepress {
namespace {

// A number of each of sixteen lanes.
struct Sixteen {
  static_assert(kParts * kLanes == kKvLanes);

  template <class Part>
  [[gnu::always_inline]] static Sixteen of(const Part& part) {
    Sixteen made;
#pragma GCC unroll 4
    for (int i = 0; i < kParts; ++i) made.parts[i] = part(i);
    return made;
  }
  [[gnu::always_inline]] static Sixteen words(const void* from) {
    return of([&](int i) { return load<Words>(static_cast<const uint8_t*>(from) + i * kSimdBytes); });
  }
  [[gnu::always_inline]] static Sixteen halves(const uint16_t* from) {
    return of([&](int i) { return widen(load<Halves>(from + i * kLanes)); });
  }
  [[gnu::always_inline]] static Sixteen bytes(const uint8_t* from) {
    return of([&](int i) { return widen(load<Quarters>(from + i * kLanes)); });
  }
  [[gnu::always_inline]] void store_words(void* to) const { std::memcpy(to, parts, sizeof parts); }
  [[gnu::always_inline]] void store_bytes(uint8_t* to) const {
    SignedWords lanes[kParts];  // a byte's bits as if it were signed
    for (int i = 0; i < kParts; ++i) lanes[i] = std::bit_cast<SignedWords>(parts[i] << 24) >> 24;
    tilepress::store_bytes(lanes, reinterpret_cast<int8_t*>(to));
  }

  Words parts[kParts];
};

[[gnu::always_inline]] inline Words either(Words a, Words b) { return a | b; }
[[gnu::always_inline]] inline Words fields_of(Words halves) { return halves >> 10 & 31; }
[[gnu::always_inline]] inline Words negative_if(Words signs, Words magnitudes) { return (magnitudes ^ signs) - signs; }
[[gnu::always_inline]] inline uint32_t kept_bits(int bits) { return ~0u << (8 - bits); }

// The 8-bit integers that FP16 numbers are under exponents, which are no less than theirs, cut to the bits of `kept`.
[[gnu::always_inline]] inline Words integers_of(Words halves, Words exponents, uint32_t kept) {
  const Words none = {}, fields = fields_of(halves);
  const Words significands = (halves & 1023) | ((fields != none) & 1024);
  const Words steps = larger(exponents, none + 1) - larger(fields, none + 1);
  const Words shifts = (steps < none + 12 ? steps : none + 12) + 3;  // 15 leaves nothing
  return negative_if(-(halves >> 15), significands >> shifts & kept);
}

[[gnu::always_inline]] inline Words truncated(Words integers, uint32_t kept) {
  const Words signs = -(integers >> 31);
  return negative_if(signs, negative_if(signs, integers) & kept);
}

// A token's values of a unit: one of each lane.
struct Column {
  explicit Column(int64_t token)
      : row(64 * (token / 4 & 3)), shift(8 * (token % 4) + (token / 4 & 4)), sign(8 * (token % 4) + token / 4) {}

  [[gnu::always_inline]] Sixteen get(const KvUnits& unit) const {
    const Sixteen codes = Sixteen::words(unit.codes + row), signs = Sixteen::words(unit.codes + 256);
    const Sixteen lows = unit.lows ? Sixteen::words(unit.lows + row) : Sixteen{};
    return Sixteen::of([&](int i) {
      const Words high = (codes.parts[i] >> shift & 15) - (signs.parts[i] >> sign & 1) * 16;
      return high * 16 + (lows.parts[i] >> shift & 15);
    });
  }

  // Where there are no lows values must be multiples of 16.
  [[gnu::always_inline]] void set(const KvUnits& unit, const Sixteen& values) const {
    put(unit.codes + row, 15u << shift, [&](int i) { return values.parts[i] >> 4 << shift; });
    put(unit.codes + 256, 1u << sign, [&](int i) { return values.parts[i] >> 31 << sign; });
    if (unit.lows) put(unit.lows + row, 15u << shift, [&](int i) { return values.parts[i] << shift; });
  }

  int64_t row, shift, sign;

 private:
  template <class Bits>
  [[gnu::always_inline]] static void put(uint8_t* vector, uint32_t mask, const Bits& bits) {
    const Sixteen before = Sixteen::words(vector);
    Sixteen::of([&](int i) { return (before.parts[i] & ~mask) | (bits(i) & mask); }).store_words(vector);
  }
};

// A lane's 32 values: those of rows 0 to 3, and those of rows 4 to 7, which share their bytes.
struct Lane {
  Sixteen low, high;

  [[gnu::always_inline]] static Lane get(const KvUnits& unit, int lane) {
    uint8_t codes[16], lows[16] = {}, signs[16];
    for (int row = 0; row < 4; ++row) {
      std::memcpy(codes + 4 * row, unit.codes + 64 * row + 4 * lane, 4);
      if (unit.lows) std::memcpy(lows + 4 * row, unit.lows + 64 * row + 4 * lane, 4);
      std::memcpy(signs + 4 * row, unit.codes + 256 + 4 * lane, 4);
    }
    const Sixteen highs = Sixteen::bytes(codes), rest = Sixteen::bytes(lows), sign = Sixteen::bytes(signs);
    const auto values = [&](uint32_t half) {
      return Sixteen::of([&](int i) {
        const Words negative = sign.parts[i] >> (rows(i) + half) & 1;
        return ((highs.parts[i] >> half & 15) - negative * 16) * 16 + (rest.parts[i] >> half & 15);
      });
    };
    return {values(0), values(4)};
  }

  // Where there are no lows values must be multiples of 16.
  [[gnu::always_inline]] void set(const KvUnits& unit, int lane) const {
    uint8_t codes[16], lows[16];
    Sixteen::of([&](int i) { return (low.parts[i] >> 4 & 15) | (high.parts[i] & 0xf0); }).store_bytes(codes);
    Sixteen::of([&](int i) { return (low.parts[i] & 15) | (high.parts[i] & 15) << 4; }).store_bytes(lows);
    Words signs = {};
#pragma GCC unroll 4
    for (int i = 0; i < kParts; ++i) {
      signs |= low.parts[i] >> 31 << rows(i) | high.parts[i] >> 31 << (rows(i) + 4);
    }
    if constexpr (kLanes > 4) signs = joined<kLanes / 2, 4>(signs, either);
    for (int row = 0; row < 4; ++row) {
      std::memcpy(unit.codes + 64 * row + 4 * lane, codes + 4 * row, 4);
      if (unit.lows) std::memcpy(unit.lows + 64 * row + 4 * lane, lows + 4 * row, 4);
    }
    for (int i = 0; i < 4; ++i) unit.codes[256 + 4 * lane + i] = static_cast<uint8_t>(signs[i]);
  }

 private:
  // Of each lane of a part, the row that its value is of.
  struct Rows {
    constexpr Rows() : of() {
      for (uint32_t i = 0; i < kKvLanes; ++i) of[i] = i / 4;
    }
    alignas(kSimdBytes) uint32_t of[kKvLanes];
  };
  [[gnu::always_inline]] static Words rows(int part) {
    static constexpr Rows kRows;
    return load<Words>(kRows.of + part * kLanes);
  }
};

// Five bits of each lane.
struct Exponents {
  [[gnu::always_inline]] static Sixteen get(const uint8_t* from) {
    uint64_t nibbles;
    uint16_t bits;
    std::memcpy(&nibbles, from, 8);
    std::memcpy(&bits, from + 8, 2);
    uint8_t fields[kKvLanes];
    const uint64_t low = (nibbles & kNibbles) | spread(bits & 255),
                   high = (nibbles >> 4 & kNibbles) | spread(bits >> 8);
    std::memcpy(fields, &low, 8);
    std::memcpy(fields + 8, &high, 8);
    return Sixteen::bytes(fields);
  }

  [[gnu::always_inline]] static void set(const Sixteen& exponents, uint8_t* to) {
    uint64_t low, high;
    uint8_t fields[kKvLanes];
    exponents.store_bytes(fields);
    std::memcpy(&low, fields, 8);
    std::memcpy(&high, fields + 8, 8);
    const uint64_t nibbles = (low & kNibbles) | (high & kNibbles) << 4;
    std::memcpy(to, &nibbles, 8);
    to[8] = gathered(low);
    to[9] = gathered(high);
  }

  [[gnu::always_inline]] static void set_one(int lane, uint32_t exponent, uint8_t* to) {
    uint8_t &nibbles = to[lane % 8], &bits = to[8 + lane / 8];
    const int shift = lane / 8 * 4, place = lane % 8;
    nibbles = static_cast<uint8_t>((nibbles & ~(15u << shift)) | (exponent & 15) << shift);
    bits = static_cast<uint8_t>((bits & ~(1u << place)) | exponent >> 4 << place);
  }

 private:
  static constexpr uint64_t kNibbles = 0x0f0f0f0f0f0f0f0f, kOnes = 0x0101010101010101;

  // Bit i of a byte becomes bit 4 of byte i, and back.
  [[gnu::always_inline]] static uint64_t spread(uint64_t bits) {
    const uint64_t own = bits * kOnes & 0x8040201008040201;
    return ((own + 0x7f7f7f7f7f7f7f7f) >> 7 & kOnes) << 4;
  }
  [[gnu::always_inline]] static uint8_t gathered(uint64_t fields) {
    return static_cast<uint8_t>((fields >> 4 & kOnes) * 0x0102040810204080 >> 56);
  }
};

// Units of a key's groups of channels follow each other, and a token is a lane of each.
inline KvUnits units_of_token(const KvUnits& keys, int64_t channels, int place) {
  return keys.unit(place / kKvLanes * (channels / kKvGroup));
}

}  // namespace
}  // namespace tilepress
