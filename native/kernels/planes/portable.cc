#include "kernels/planes/groups.h"

namespace tilepress {
namespace {

// The magnitude with 16 bits under an exponent, which is at least 1.
uint32_t magnitude_under(int exponent, uint16_t half) {
  const int field = half >> 10 & 31;
  const uint32_t significand = (half & 0x3ffu) | (field ? 0x400u : 0u);
  return significand << 5 >> (exponent - most(field, 1));
}

uint16_t to_half(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const bool overflows = (bits & 0x7fffffff) >= std::bit_cast<uint32_t>(65520.0f);
  return overflows ? static_cast<uint16_t>((bits >> 16 & 0x8000) | 0x7c00) : float_to_fp16(x);
}

// Eight bytes of eight bits: bit i of byte j to bit j of byte i. Halves, quarters and eighths change places.
uint64_t transpose(uint64_t x) {
  const auto swap = [&](int by, uint64_t mask) {
    const uint64_t differ = (x ^ x >> by) & mask;
    x ^= differ ^ differ << by;
  };
  swap(28, 0x00000000f0f0f0f0);
  swap(14, 0x0000cccc0000cccc);
  swap(7, 0x00aa00aa00aa00aa);
  return x;
}

struct Scalar {
  static void to_halves(const float* floats, uint16_t* halves) {
    for (int i = 0; i < kPlaneValues; ++i) halves[i] = to_half(floats[i]);
  }

  template <int mantissa>
  static uint8_t pack(const uint16_t* halves, uint8_t* planes) {
    int field = 0;
    for (int i = 0; i < kPlaneValues; ++i) field = most(field, halves[i] >> 10 & 31);
    uint8_t words[1 + kMaxMantissa][kPlaneBytes];
    for (int byte = 0; byte < kPlaneBytes; ++byte) {
      uint64_t signs = 0, high = 0, low = 0;
      for (int i = 0; i < 8; ++i) {
        const uint16_t half = halves[8 * byte + i];
        const uint64_t magnitude = magnitude_under(most(field, 1), half);
        signs |= static_cast<uint64_t>(half >> 15) << i;
        high |= (magnitude >> 8) << 8 * i;
        low |= (magnitude & 0xff) << 8 * i;
      }
      high = transpose(high), low = transpose(low);
      words[0][byte] = static_cast<uint8_t>(signs);
      for (int i = 0; i < 8; ++i) {
        words[1 + i][byte] = static_cast<uint8_t>(high >> 8 * (7 - i));
        words[9 + i][byte] = static_cast<uint8_t>(low >> 8 * (7 - i));
      }
    }
    std::memcpy(planes, words, (1 + mantissa) * kPlaneBytes);
    return static_cast<uint8_t>(field);
  }

  template <int mantissa>
  static void unpack(const uint8_t* planes, float unit, uint16_t* halves) {
    uint8_t words[1 + kMaxMantissa][kPlaneBytes] = {};
    std::memcpy(words, planes, (1 + mantissa) * kPlaneBytes);
    for (int byte = 0; byte < kPlaneBytes; ++byte) {
      uint64_t high = 0, low = 0;
      for (int i = 0; i < 8; ++i) {
        high |= static_cast<uint64_t>(words[1 + i][byte]) << 8 * (7 - i);
        low |= static_cast<uint64_t>(words[9 + i][byte]) << 8 * (7 - i);
      }
      high = transpose(high), low = transpose(low);
      for (int i = 0; i < 8; ++i) {
        const auto magnitude = static_cast<float>((high >> 8 * i & 0xff) << 8 | (low >> 8 * i & 0xff));
        const uint16_t sign = static_cast<uint16_t>((words[0][byte] >> i & 1) << 15);
        halves[8 * byte + i] = sign | to_half(magnitude * unit);
      }
    }
  }
};

}  // namespace

void portable::pack_planes(Real type, const void* values, int64_t groups, int mantissa, uint8_t* planes,
                           uint8_t* fields) {
  pack_planes_with<Scalar>(type, values, groups, mantissa, planes, fields);
}

void portable::unpack_planes(const uint8_t* planes, const uint8_t* fields, int64_t groups, int mantissa,
                             uint16_t* halves) {
  unpack_planes_with<Scalar>(planes, fields, groups, mantissa, halves);
}

}  // namespace tilepress
