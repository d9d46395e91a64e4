// What the NEON kernels share: scales, sums over segments, and how dense 4-bit codes are taken apart.
#pragma once

#include <arm_neon.h>

#include <type_traits>
#include <utility>

#include "linear/int8_k_panel.h"

namespace tilepress {
namespace {

constexpr int kQuarters = 4;  // vectors of four neurons in a block

// Four floats that sums start at, loaded rather than copied, which a vector pipe would have a part in: `sum` and
// `group` are there to be told apart by.
template <int sum>
[[gnu::always_inline]] inline int32x4_t load_start(const float* start, int64_t group) {
  int32x4_t loaded;
  asm("ldr %q0, %1" : "=w"(loaded) : "m"(*reinterpret_cast<const float32x4_t*>(start)), "i"(sum), "r"(group));
  return loaded;
}

// The sixteen scales of a group, four at a time.
struct Bf16Scales {
  Bf16Scales(const KPanel& weights, int64_t group) {
    const auto* at = static_cast<const uint16_t*>(weights.scales) + group * kBlockNeurons;
    halves[0] = vld1q_u16(at);
    halves[1] = vld1q_u16(at + 8);
  }

  // Zipped with zeros rather than shifted: shifts have one vector pipe only.
  float32x4_t quarter(int index) const {
    const uint16x8_t zero = vdupq_n_u16(0), eight = halves[index / 2];
    return vreinterpretq_f32_u16(index % 2 ? vzip2q_u16(zero, eight) : vzip1q_u16(zero, eight));
  }

  uint16x8_t halves[2];
};

// Powers of two: exponents, but for the least one, which is a subnormal number, and the largest, which is none.
struct PowerScales {
  PowerScales(const KPanel& weights, int64_t group) {
    const uint8x16_t zero = vdupq_n_u8(0);
    const uint8x16_t bytes = vld1q_u8(static_cast<const uint8_t*>(weights.scales) + group * kBlockNeurons);
    halves[0] = vreinterpretq_u16_u8(vzip1q_u8(zero, bytes));
    halves[1] = vreinterpretq_u16_u8(vzip2q_u8(zero, bytes));
  }

  float32x4_t quarter(int index) const {
    const uint16x8_t zero = vdupq_n_u16(0), eight = halves[index / 2];
    const uint16x8_t words = index % 2 ? vzip2q_u16(zero, eight) : vzip1q_u16(zero, eight);
    const uint32x4_t power = vshrq_n_u32(vreinterpretq_u32_u16(words), 1), infinity = vdupq_n_u32(0x7f800000);
    const uint32x4_t none = vshrq_n_u32(vceqq_u32(power, infinity), 9);  // the bits of a mantissa
    return vreinterpretq_f32_u32(vorrq_u32(vmaxq_u32(power, vdupq_n_u32(1 << 22)), none));
  }

  uint16x8_t halves[2];
};

struct OtherScales {
  OtherScales(const KPanel& weights, int64_t group) {
    if (weights.format->scale == ScaleType::fp16) {
      load_halves(static_cast<const uint16_t*>(weights.scales) + group * kBlockNeurons);
    } else {
      load_scales(weights, group, all);
    }
  }

  void load_halves(const uint16_t* from) {
    for (int i = 0; i < kBlockNeurons; i += 4) {
      vst1q_f32(all + i, vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(from + i))));
    }
  }

  float32x4_t quarter(int index) const { return vld1q_f32(all + 4 * index); }

  float all[kBlockNeurons];
};

// The sixteen zero points of a group, four at a time. How a segment's sums become floats beside them:
//   Zeros(weights, group); quarter(index); value(sums, row, quarter of sums, its zero points, sum of x)
struct ZeroBytes {
  ZeroBytes(const KPanel& weights, int64_t group) {
    const uint8x16_t bytes = vld1q_u8(weights.zeros + group * kBlockNeurons);
    halves[0] = vmovl_u8(vget_low_u8(bytes));
    halves[1] = vmovl_high_u8(bytes);
  }

  uint32x4_t wide(int index) const {
    const uint16x8_t eight = halves[index / 2];
    return index % 2 ? vmovl_high_u16(eight) : vmovl_u16(vget_low_u16(eight));
  }

  uint16x8_t halves[2];
};

struct IntegerZeros : ZeroBytes {
  IntegerZeros(const KPanel& weights, int64_t group)
      : ZeroBytes(weights, group),
        shift(vdupq_n_s32(zero_shift(*weights.format))),
        lower(vdupq_n_s32(lowered(*weights.format))) {}

  int32x4_t quarter(int index) const { return vsubq_s32(vreinterpretq_s32_u32(wide(index)), lower); }

  template <class Sums>
  float32x4_t value(const Sums& sums, int row, int quarter, int32x4_t zero, int32_t sum) const {
    return Sums::to_float(vmlsq_n_s32(vshlq_s32(sums.whole(row, quarter), shift), zero, sum));
  }

  int32x4_t shift, lower;
};

// For sums that are floats of steps already. All are below 2^24, so nothing is rounded.
struct FloatZeros : ZeroBytes {
  using ZeroBytes::ZeroBytes;

  float32x4_t quarter(int index) const { return vcvtq_f32_u32(wide(index)); }

  template <class Sums>
  float32x4_t value(const Sums& sums, int row, int quarter, float32x4_t zero, int32_t sum) const {
    return vfmsq_n_f32(sums.value(row, quarter), zero, static_cast<float>(sum));
  }
};

struct NoZeros {
  NoZeros(const KPanel&, int64_t) {}
  int quarter(int) const { return 0; }

  template <class Sums>
  float32x4_t value(const Sums& sums, int row, int quarter, int, int32_t) const {
    return sums.value(row, quarter);
  }
};

template <bool zero_points, class Sums>
using ZerosFor =
    std::conditional_t<!zero_points, NoZeros, std::conditional_t<Sums::kAnchored, FloatZeros, IntegerZeros>>;

// work<0>(), work<1>(), …: for arrays that are to stay in registers, where compilers unroll loops too late for that.
template <int count, class Work>
[[gnu::always_inline]] inline void unrolled(const Work& work) {
  [&]<int... i>(std::integer_sequence<int, i...>) __attribute__((always_inline)) {
    (work.template operator()<i>(), ...);
  }(std::make_integer_sequence<int, count>());
}

// Of some rows and quarters of a block, from quarter `first` on.
template <int rows, int quarters = kQuarters, int first = 0>
struct Totals {
  float32x4_t of[rows * quarters] = {};

  template <bool zero_points, bool units, class Scales, class Sums>
  [[gnu::always_inline]] void add(const KPanel& weights, const IntegerActivations& x, const Segment& segment,
                                  int64_t first_row, const Sums& sums) {
    const Scales scales(weights, segment.group);
    const ZerosFor<zero_points, Sums> zeros(weights, segment.group);
    unrolled<rows * quarters>([&]<int i>() __attribute__((always_inline)) {
      constexpr int kRow = i / quarters, kQuarter = i % quarters;
      const int64_t at = (first_row + kRow) * x.segment_stride + segment.index;
      float32x4_t value = zeros.value(sums, kRow, kQuarter, zeros.quarter(first + kQuarter), x.sums[at]);
      if constexpr (units) value = vmulq_n_f32(value, x.units[at]);
      of[i] = vfmaq_f32(of[i], value, scales.quarter(first + kQuarter));
    });
  }

  // Of the first `count` rows.
  [[gnu::always_inline]] void add_to(float* out, int64_t count = rows) const {
    unrolled<rows * quarters>([&]<int i>() __attribute__((always_inline)) {
      float* at = out + i / quarters * kBlockNeurons + 4 * (first + i % quarters);
      if (i / quarters < count) vst1q_f32(at, vaddq_f32(vld1q_f32(at), of[i]));
    });
  }
};

// Codes that ask nothing of their format, and have a vector of each line for each quarter of a block.
struct AsTheyAre {
  static constexpr int kQuarterBytes = 16;
  explicit AsTheyAre(const Format&) {}
};

// Sixteen inputs of dense 4-bit codes are two vectors of 64 bytes, two tile rows in each. Signed ones are left in the
// high half of a byte, sixteen times too large; the segment's end puts that right. Unsigned ones are to become sixteen
// times as large there, in steps of a zero point.
template <bool negative>
struct Dense4 : AsTheyAre {
  static constexpr int kBytes = 2 * kVectorBytes, kShift = negative ? 4 : -4;
  static constexpr bool kNear = false;
  static constexpr bool kZeroPoints = !negative, kAnchors = true;
  using AsTheyAre::AsTheyAre;

  template <class Sums, class X>
  [[gnu::always_inline]] static void step(const uint8_t* packed, const X& x, Sums& sums) {
    for (int quarter = 0; quarter < Sums::kQuarters; ++quarter, packed += 16) {
      const uint8x16_t one = vld1q_u8(packed), two = vld1q_u8(packed + kVectorBytes);
      sums.template add<0>(quarter, low(one), x);
      sums.template add<1>(quarter, high(one), x);
      sums.template add<2>(quarter, low(two), x);
      sums.template add<3>(quarter, high(two), x);
    }
  }

  static int8x16_t low(uint8x16_t pairs) {
    return vreinterpretq_s8_u8(negative ? vshlq_n_u8(pairs, 4) : vandq_u8(pairs, vdupq_n_u8(15)));
  }
  static int8x16_t high(uint8x16_t pairs) {
    return vreinterpretq_s8_u8(negative ? vandq_u8(pairs, vdupq_n_u8(0xf0)) : vshrq_n_u8(pairs, 4));
  }
};

}  // namespace
}  // namespace tilepress
