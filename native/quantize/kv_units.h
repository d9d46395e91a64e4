// Keys and values of one token as integers under shared exponents, and both cut to fewer bits, as kv.h lays them out.
#pragma once

#include "quantize/block_floats.h"
#include "simd/simd.h"
#include "tilepress/kv_bfp.h"

namespace tilepress {
namespace {

// One number for each of sixteen lanes of a unit.
struct Sixteen {
  static_assert(kBlockVectors * kLanes == kKvLanes);

  template <class Part>
  [[gnu::always_inline]] static Sixteen of(const Part& part) {
    Sixteen made;
#pragma GCC unroll 4
    for (int i = 0; i < kBlockVectors; ++i) made.parts[i] = part(i);
    return made;
  }
  [[gnu::always_inline]] static Sixteen words(const void* from) {
    return of([&](int i) { return load<Uint32s>(static_cast<const uint8_t*>(from) + i * kSimdBytes); });
  }
  [[gnu::always_inline]] static Sixteen halves(const uint16_t* from) {
    return of([&](int i) { return widen(load<Uint16s>(from + i * kLanes)); });
  }
  [[gnu::always_inline]] static Sixteen bytes(const uint8_t* from) {
    return of([&](int i) { return widen(load<Uint8s>(from + i * kLanes)); });
  }
  [[gnu::always_inline]] void store_words(void* to) const { std::memcpy(to, parts, sizeof parts); }
  [[gnu::always_inline]] void store_bytes(uint8_t* to) const { store_uint8x16(parts, to); }

  Uint32s parts[kBlockVectors];
};

[[gnu::always_inline]] inline Uint32s fields_of(Uint32s halves) { return halves >> 10 & 31; }
[[gnu::always_inline]] inline Uint32s negative_if(Uint32s signs, Uint32s magnitudes) {
  return (magnitudes ^ signs) - signs;
}

// Magnitudes of 8 bits cut to fewer: truncated, or to the nearest such number, of two as near the larger.
struct Cut {
  Cut(int bits, bool nearest) : mask(~0u << (8 - bits)), half(nearest ? 1u << (8 - bits) >> 1 : 0) {}

  [[gnu::always_inline]] Uint32s operator()(Uint32s magnitudes) const {
    return min(magnitudes + half, splat<Uint32s>(255u)) & mask;
  }

  uint32_t mask, half;
};

// FP16 numbers as 8-bit integers under shared exponents, which are no less than theirs, cut.
[[gnu::always_inline]] inline Uint32s integers_of(Uint32s halves, Uint32s exponents, const Cut& cut) {
  const Uint32s fields = fields_of(halves), one = splat<Uint32s>(1u);
  const Uint32s significands = (halves & 1023) | ((fields != 0) & 1024);
  const Uint32s steps = max(exponents, one) - max(fields, one);
  const Uint32s shifts = min(steps, splat<Uint32s>(12u)) + 3;  // 15 leaves nothing
  return negative_if(-(halves >> 15), cut(significands >> shifts));
}

[[gnu::always_inline]] inline Uint32s with_fewer_bits(Uint32s integers, const Cut& cut) {
  const Uint32s signs = -(integers >> 31);
  return negative_if(signs, cut(negative_if(signs, integers)));
}

// One token's values in a unit: one per lane.
struct Column {
  explicit Column(int64_t token)
      : row(64 * (token / 4 & 3)), shift(8 * (token % 4) + (token / 4 & 4)), sign(8 * (token % 4) + token / 4) {}

  [[gnu::always_inline]] Sixteen get(const KvUnits& unit) const {
    const Sixteen codes = Sixteen::words(unit.codes + row), signs = Sixteen::words(unit.codes + 256);
    const Sixteen lows = unit.lows ? Sixteen::words(unit.lows + row) : Sixteen{};
    return Sixteen::of([&](int i) {
      const Uint32s high = (codes.parts[i] >> shift & 15) - (signs.parts[i] >> sign & 1) * 16;
      return high * 16 + (lows.parts[i] >> shift & 15);
    });
  }

  // Without lows, values must be multiples of 16.
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

// One lane's 32 values: rows 0 to 3 in low nibbles, rows 4 to 7 in high ones.
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
        const Uint32s negative = sign.parts[i] >> (rows(i) + half) & 1;
        return ((highs.parts[i] >> half & 15) - negative * 16) * 16 + (rest.parts[i] >> half & 15);
      });
    };
    return {values(0), values(4)};
  }

  // Without lows, values must be multiples of 16.
  [[gnu::always_inline]] void set(const KvUnits& unit, int lane) const {
    uint8_t codes[16], lows[16];
    Sixteen::of([&](int i) { return (low.parts[i] >> 4 & 15) | (high.parts[i] & 0xf0); }).store_bytes(codes);
    Sixteen::of([&](int i) { return (low.parts[i] & 15) | (high.parts[i] & 15) << 4; }).store_bytes(lows);
    Uint32s signs = {};
#pragma GCC unroll 4
    for (int i = 0; i < kBlockVectors; ++i) {
      signs |= low.parts[i] >> 31 << rows(i) | high.parts[i] >> 31 << (rows(i) + 4);
    }
    signs = reduce_lanes<4>(signs, bit_or<Uint32s>);
    for (int row = 0; row < 4; ++row) {
      std::memcpy(unit.codes + 64 * row + 4 * lane, codes + 4 * row, 4);
      if (unit.lows) std::memcpy(unit.lows + 64 * row + 4 * lane, lows + 4 * row, 4);
    }
    for (int i = 0; i < 4; ++i) unit.codes[256 + 4 * lane + i] = static_cast<uint8_t>(signs[i]);
  }

 private:
  // The row of each value of one vector.
  struct Rows {
    constexpr Rows() : of() {
      for (uint32_t i = 0; i < kKvLanes; ++i) of[i] = i / 4;
    }
    alignas(kSimdBytes) uint32_t of[kKvLanes];
  };
  [[gnu::always_inline]] static Uint32s rows(int part) {
    static constexpr Rows kRows;
    return load<Uint32s>(kRows.of + part * kLanes);
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

// Units of one key's channel groups follow each other; a token is one lane of each.
inline KvUnits units_of_token(const KvUnits& keys, int64_t channels, int place) {
  return keys.unit(place / kKvLanes * (channels / kKvGroup));
}

}  // namespace
}  // namespace tilepress
