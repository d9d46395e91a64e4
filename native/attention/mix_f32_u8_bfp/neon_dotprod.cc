#include "attention/bfp_lanes_neon.h"

namespace tilepress {
namespace {

// Codes raised by 16 to be unsigned.
template <int count>
inline void add_raised(const uint8_t* from, const uint8x16_t* x, const uint8x16_t* y, uint32x4_t* sums) {
  const uint8x16_t signs = vld1q_u8(from + 256);
  four_times([&]<int i>() {
    const uint8x16_t nibbles = vld1q_u8(from + 64 * i);
    uint8x16_t shifted = signs;
    if constexpr (i > 0) shifted = vshrq_n_u8(signs, i);
    const uint8x16_t high = vbicq_u8(vdupq_n_u8(17), shifted), low = vshlq_n_u8(high, 4);
    dot<count, i>(vbslq_u8(vdupq_n_u8(15), nibbles, low), x, sums);
    dot<count, i>(vsriq_n_u8(high, nibbles, 4), y, sums);
  });
}

struct NeonMix {
  template <int rows>
  static void mix(const ConstKvUnits& first, int64_t units, const KvWeights& p, float* out, int64_t stride) {
    first.lows ? mix_as<rows, true>(first, units, p, out, stride) : mix_as<rows, false>(first, units, p, out, stride);
  }

 private:
  // Weights are not negative, so unsigned products do. All products of a unit are computed before any is scaled, which
  // keeps dependent instructions apart.
  template <int rows, bool wide>
  static void mix_as(const ConstKvUnits& first, int64_t count, const KvWeights& p, float* out, int64_t stride) {
    uint8x16_t x[rows], y[rows];
    uint32x4_t start[rows];  // corrects for raising the codes
    float32x4_t of_rows = vdupq_n_f32(0);
    const uint32_t anchor = wide ? 0 : std::bit_cast<uint32_t>(kAnchor);
    for (int row = 0; row < rows; ++row) {
      x[row] = vld1q_u8(p.values + row * kKvSegment);
      y[row] = vld1q_u8(p.values + row * kKvSegment + 16);
      start[row] = vdupq_n_u32(anchor - static_cast<uint32_t>(16 * p.sums[row * kKvSegmentPages]));
      of_rows[row] = p.units[row * kKvSegmentPages];
    }
    for (int64_t at = 0; at < count; ++at, out += stride) {
      const ConstKvUnits unit = first.unit(at);
      prefetch(unit.codes, kKvUnitCodes, unit.exponents, count);
      uint32x4_t products[kPieces][rows];
      for (int piece = 0; piece < kPieces; ++piece) {
        uint32x4_t sums[rows];
        for (int row = 0; row < rows; ++row) sums[row] = fresh(start[row]);
        add_raised<rows>(unit.codes + 16 * piece, x, y, sums);
        if constexpr (wide) {
          const uint32x4_t anchors = vreinterpretq_u32_f32(vdupq_n_f32(kAnchor));
          for (int row = 0; row < rows; ++row) sums[row] = vaddq_u32(vshlq_n_u32(sums[row], 4), anchors);
          add_lows<rows>(unit.lows + 16 * piece, x, y, sums);
        }
        for (int row = 0; row < rows; ++row) products[piece][row] = sums[row];
      }
      add_products<rows>(unit, products, of_rows, out);
    }
  }

  template <int rows>
  static void add_products(const ConstKvUnits& unit, const uint32x4_t (*products)[rows], float32x4_t of_rows,
                           float* out) {
    float units[kKvLanes];
    lane_units_of(unit, units);
    for (int piece = 0; piece < kPieces; ++piece, out += 4) {
      const float32x4_t of_lanes = vld1q_f32(units + 4 * piece);
      float32x4_t dots[rows], accumulators[rows];
      for (int row = 0; row < rows; ++row) dots[row] = vmulq_f32(as_floats(products[piece][row]), of_lanes);
      for (int row = 0; row < rows; ++row) accumulators[row] = vld1q_f32(out + row * kKvLanes);
      add_rows<rows>(dots, of_rows, accumulators);
      for (int row = 0; row < rows; ++row) vst1q_f32(out + row * kKvLanes, accumulators[row]);
    }
  }
};

void mix_f32_u8_bfp(const ConstKvUnits& values, int64_t channels, const KvWeights& weights, float* out) {
  mix_page<NeonMix>(values, channels, weights, out);
}

TILEPRESS_KERNEL(mix_f32_u8_bfp);

}  // namespace
}  // namespace tilepress
