#include "pack/planes_scalar.h"

namespace tilepress {
namespace {

struct ScalarUnpack {
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
        halves[8 * byte + i] = sign | round_to_fp16(magnitude * unit);
      }
    }
  }
};

void unpack_f16_planes(const uint8_t* planes, const uint8_t* fields, int64_t groups, int mantissa, uint16_t* halves) {
  unpack_planes_with<ScalarUnpack>(planes, fields, groups, mantissa, halves);
}

TILEPRESS_KERNEL(unpack_f16_planes);

}  // namespace
}  // namespace tilepress
