// Shared by the NEON kernels: scales, zero points, accumulators of a K-panel, and dense 4-bit codes.
#pragma once

#include <arm_neon.h>

#include <type_traits>
#include <utility>

#include "linear/int8_k_panel.h"

namespace tilepress {
namespace {

constexpr int kQuarters = 4;  // vectors of four neurons per block

// The start of four sums, loaded anew for each: copying a register would take a slot of a vector pipe. `sum` and
// `group` only keep the compiler from merging the loads.
template <int sum>
[[gnu::always_inline]] inline int32x4_t load_start(const float* start, int64_t group) {
  int32x4_t loaded;
  asm("ldr %q0, %1" : "=w"(loaded) : "m"(*reinterpret_cast<const float32x4_t*>(start)), "i"(sum), "r"(group));
  return loaded;
}

// The 16 scales of a group; quarter(i) gives four as float32.
struct Bf16Scales {
  Bf16Scales(const KPanel& weights, int64_t group) {
    const auto* at = static_cast<const uint16_t*>(weights.scales) + group * kBlockNeurons;
    halves[0] = vld1q_u16(at);
    halves[1] = vld1q_u16(at + 8);
  }

  // Zipped with zeros, not shifted: only one vector pipe shifts.
  float32x4_t quarter(int index) const {
    const uint16x8_t zero = vdupq_n_u16(0), eight = halves[index / 2];
    return vreinterpretq_f32_u16(index % 2 ? vzip2q_u16(zero, eight) : vzip1q_u16(zero, eight));
  }

  uint16x8_t halves[2];
};

// E8M0: float32 exponents, except that code 0 is the subnormal 2^-127 and code 255 is NaN.
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
    const uint32x4_t nan = vshrq_n_u32(vceqq_u32(power, infinity), 9);  // all bits of the mantissa
    return vreinterpretq_f32_u32(vorrq_u32(vmaxq_u32(power, vdupq_n_u32(1 << 22)), nan));
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

// Zero points of a group, and how a segment's sums become floats with them:
//   Zeros(weights, group)
//   quarter(index)                              zero points of four neurons
//   value(sums, row, quarter, zeros, sum of x)  float of (sum - zero point · sum of x)
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
        offset(vdupq_n_s32(code_offset(*weights.format))) {}

  int32x4_t quarter(int index) const { return vsubq_s32(vreinterpretq_s32_u32(wide(index)), offset); }

  template <class Sums>
  float32x4_t value(const Sums& sums, int row, int quarter, int32x4_t zero, int32_t sum) const {
    return Sums::to_float(vmlsq_n_s32(vshlq_s32(sums.combine_limbs(row, quarter), shift), zero, sum));
  }

  int32x4_t shift, offset;
};

// For anchored sums in steps of zero points. All terms are below 2^24, so nothing is rounded.
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

// work<0>(), work<1>(), …: keeps arrays in registers; compilers unroll loops too late for that.
template <int count, class Work>
[[gnu::always_inline]] inline void unrolled(const Work& work) {
  [&]<int... i>(std::integer_sequence<int, i...>) __attribute__((always_inline)) {
    (work.template operator()<i>(), ...);
  }(std::make_integer_sequence<int, count>());
}

// Accumulators of a K-panel: `rows` rows, and `quarters` quarters of a block from `first` on.
template <int rows, int quarters = kQuarters, int first = 0>
struct Totals {
  float32x4_t totals[rows * quarters] = {};

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
      totals[i] = vfmaq_f32(totals[i], value, scales.quarter(first + kQuarter));
    });
  }

  // Adds the first `count` rows to `out`.
  [[gnu::always_inline]] void add_to(float* out, int64_t count = rows) const {
    unrolled<rows * quarters>([&]<int i>() __attribute__((always_inline)) {
      float* at = out + i / quarters * kBlockNeurons + 4 * (first + i % quarters);
      if (i / quarters < count) vst1q_f32(at, vaddq_f32(vld1q_f32(at), totals[i]));
    });
  }
};

// Codes: how operands of dense weights are read, a step of 16 inputs at a time.
//   kBytes, kQuarterBytes     bytes per step, and from one quarter of a block to the next
//   kShift                    operands are 2^kShift times too large (log2 of a step of zero points if signed_codes)
//   kCached                   operands are in a cache: no prefetch
//   kZeroPoints, kAnchors     whether there are zero points; whether sums may be anchored
//   step(packed, x, sums)

// Codes that need nothing of their format.
struct PlainCodes {
  static constexpr int kQuarterBytes = 16;
  explicit PlainCodes(const Format&) {}
};

// Dense 4-bit codes: 16 inputs are two vectors of 64 bytes, with two tile rows each. Signed codes stay in the high half
// of a byte, 16 times too large, which the end of the segment corrects. Sums of unsigned codes become 16 times larger
// there, in steps of zero points.
template <bool signed_codes>
struct Dense4 : PlainCodes {
  static constexpr int kBytes = 2 * kVectorBytes, kShift = signed_codes ? 4 : -4;
  static constexpr bool kCached = false;
  static constexpr bool kZeroPoints = !signed_codes, kAnchors = true;
  using PlainCodes::PlainCodes;

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
    return vreinterpretq_s8_u8(signed_codes ? vshlq_n_u8(pairs, 4) : vandq_u8(pairs, vdupq_n_u8(15)));
  }
  static int8x16_t high(uint8x16_t pairs) {
    return vreinterpretq_s8_u8(signed_codes ? vandq_u8(pairs, vdupq_n_u8(0xf0)) : vshrq_n_u8(pairs, 4));
  }
};

}  // namespace
}  // namespace tilepress
