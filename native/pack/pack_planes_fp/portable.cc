#include "pack/planes_scalar.h"

namespace tilepress {
namespace {

// The magnitude with 16 bits under an exponent, which is at least 1.
uint32_t magnitude_under(int exponent, uint16_t half) {
  const int field = half >> 10 & 31;
  const uint32_t significand = (half & 0x3ffu) | (field ? 0x400u : 0u);
  return significand << 5 >> (exponent - most(field, 1));
}

struct ScalarPack {
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
};

void pack_planes_fp(FloatType type, const void* values, int64_t groups, int mantissa, uint8_t* planes,
                    uint8_t* fields) {
  pack_planes_with<ScalarPack>(type, values, groups, mantissa, planes, fields);
}

TILEPRESS_KERNEL(pack_planes_fp);

}  // namespace
}  // namespace tilepress
