#include <arm_neon.h>

#include <initializer_list>

#include "quantize/block_floats.h"
#include "tilepress/kv_bfp.h"

namespace tilepress {
namespace {

constexpr int kVectors = kKvGroup / 4, kAbreast = 4;

// exp of simd/math.h to the bit, for -40 <= x <= 0, of vectors abreast: each operation waits for the one before. The
// last factor, a power of two, is added to the exponents.
inline void exponentials(float32x4_t* x) {
  const float32x4_t halves = vdupq_n_f32(0x1.8p23f);
  float32x4_t rounded[kAbreast], r[kAbreast], sums[kAbreast];
  const auto each = [](const auto& work) {
    for (int i = 0; i < kAbreast; ++i) work(i);
  };
  each([&](int i) { x[i] = vmaxnmq_f32(x[i], vdupq_n_f32(-40.0f)); });
  each([&](int i) { rounded[i] = vaddq_f32(vmulq_n_f32(x[i], 1.44269504088896341f), halves); });
  each([&](int i) { sums[i] = vsubq_f32(rounded[i], halves); });
  each([&](int i) { r[i] = vsubq_f32(x[i], vmulq_n_f32(sums[i], 0.693359375f)); });
  each([&](int i) { r[i] = vsubq_f32(r[i], vmulq_n_f32(sums[i], -2.12194440e-4f)); });
  each([&](int i) { sums[i] = vdupq_n_f32(1.9875691500e-4f); });
  for (float term : {1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f, 1.6666665459e-1f, 5.0000001201e-1f}) {
    each([&](int i) { sums[i] = vmulq_f32(sums[i], r[i]); });
    each([&](int i) { sums[i] = vaddq_f32(sums[i], vdupq_n_f32(term)); });
  }
  each([&](int i) { sums[i] = vmulq_f32(sums[i], vmulq_f32(r[i], r[i])); });
  each([&](int i) { sums[i] = vaddq_f32(sums[i], r[i]); });
  each([&](int i) { sums[i] = vaddq_f32(sums[i], vdupq_n_f32(1.0f)); });
  each([&](int i) {
    const uint32x4_t power = vshlq_n_u32(vreinterpretq_u32_f32(rounded[i]), 23);
    x[i] = vreinterpretq_f32_u32(vaddq_u32(vreinterpretq_u32_f32(sums[i]), power));
  });
}

// Half a unit in the last place that FP16 has at x, added to it. Bits are cut off that are at least four times as
// large, so that it makes no difference which way halves are rounded: either reaches the next such bit or none does.
inline float32x4_t raised_to_fp16(float32x4_t x) {
  const uint32x4_t normal = vaddq_u32(vreinterpretq_u32_f32(x), vdupq_n_u32(1u << 12));
  const float32x4_t subnormal = vaddq_f32(x, vdupq_n_f32(0x1p-25f));
  return vreinterpretq_f32_u32(vmaxq_u32(normal, vreinterpretq_u32_f32(subnormal)));
}

inline uint8x16_t as_bytes(const uint32x4_t* whole) {
  const uint16x8_t first = vuzp1q_u16(vreinterpretq_u16_u32(whole[0]), vreinterpretq_u16_u32(whole[1]));
  const uint16x8_t second = vuzp1q_u16(vreinterpretq_u16_u32(whole[2]), vreinterpretq_u16_u32(whole[3]));
  return vuzp1q_u8(vreinterpretq_u8_u16(first), vreinterpretq_u8_u16(second));
}

// A group on its way: its weights, and the bits of the largest.
struct Group {
  float32x4_t weights[kVectors];
  uint32_t most;

  void begin(const float* scores, float32x4_t largest) {
    uint32x4_t mine = vdupq_n_u32(0);
    for (int i = 0; i < kVectors; ++i) weights[i] = vsubq_f32(vld1q_f32(scores + 4 * i), largest);
    for (int i = 0; i < kVectors; i += kAbreast) exponentials(weights + i);
    for (int i = 0; i < kVectors; ++i) weights[i] = raised_to_fp16(weights[i]);
    for (int i = 0; i < kVectors; ++i) mine = vmaxq_u32(mine, vreinterpretq_u32_f32(weights[i]));
    most = vmaxvq_u32(mine);
  }

  void end(uint8_t* values, int32_t* sum, float* unit) const {
    uint32x4_t whole[kVectors];
    *unit = unit_of(most, 8);
    const float per_unit = std::bit_cast<float>((254u << 23) - std::bit_cast<uint32_t>(*unit));
    for (int i = 0; i < kVectors; ++i) whole[i] = vcvtq_u32_f32(vmulq_n_f32(weights[i], per_unit));
    const uint8x16_t first = as_bytes(whole), second = as_bytes(whole + 4), one = vdupq_n_u8(1);
    vst1q_u8(values, first);
    vst1q_u8(values + 16, second);
    *sum = static_cast<int32_t>(vaddvq_u32(vdotq_u32(vdotq_u32(vdupq_n_u32(0), first, one), second, one)));
  }
};

// A group is ended when the next has begun: which unit it has takes a while to find.
void softmax_u8_f32(const float* scores, int64_t count, float largest, uint8_t* values, int32_t* sums, float* units) {
  Group groups[2];
  const int64_t all = count / kKvGroup;
  for (int64_t at = 0; at <= all; ++at) {
    if (at < all) groups[at % 2].begin(scores + at * kKvGroup, vdupq_n_f32(largest));
    const int64_t last = at - 1;
    if (at > 0) groups[last % 2].end(values + last * kKvGroup, sums + last, units + last);
  }
}

TILEPRESS_KERNEL(softmax_u8_f32);

}  // namespace
}  // namespace tilepress
