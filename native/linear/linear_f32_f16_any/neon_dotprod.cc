// For weights that fp16 represents exactly: decoded to fp16 in registers and multiplied at once with fp16 activations:
// eight products per instruction where float32 has four, and an 8-bit float becomes fp16 in one or two instructions.
// fp16 sums cover one tile's 32 inputs, at most 16 products each.
#include <arm_neon.h>

#include "linear/k_panel_tiles.h"
#include "pack/unpack_neon.h"
#include "quantize/scales.h"

namespace tilepress {
namespace {

constexpr int kTileInputs = tile_inputs(16);
static_assert(kTileInputs == kHalfGroup);

// Values provide Code, the type of a tile's elements, and at(codes): two inputs of eight neurons. Those with look_up()
// have their codes, of at most six bits, looked up when they are unpacked (k_panel_tiles.h).

struct ByteCodes {
  using Code = uint8_t;
  static bool drops_to_zero() { return true; }
};

// E5M2: codes are the upper bytes of fp16.
struct UpperBytes : ByteCodes {
  [[gnu::always_inline]] static float16x8x2_t at(const uint8_t* codes) {
    const uint8x16_t bytes = vld1q_u8(codes);
    return {vreinterpretq_f16_u16(vshll_n_u8(vget_low_u8(bytes), 8)), vreinterpretq_f16_u16(vshll_high_n_u8(bytes, 8))};
  }
};

// E4M3: one bit of exponent less. A signed shift leaves a copy of the sign in the highest bit of fp16's exponent.
struct ShiftedBytes : ByteCodes {
  [[gnu::always_inline]] static float16x8x2_t at(const uint8_t* codes) {
    const int8x16_t bytes = vreinterpretq_s8_u8(vld1q_u8(codes));
    return {without_copy(vshll_n_s8(vget_low_s8(bytes), 7)), without_copy(vshll_high_n_s8(bytes, 7))};
  }

 private:
  [[gnu::always_inline]] static float16x8_t without_copy(int16x8_t shifted) {
    return vreinterpretq_f16_s16(vbicq_s16(shifted, vdupq_n_s16(0x4000)));
  }
};

struct HalfCodes {
  using Code = uint16_t;
  static bool drops_to_zero() { return true; }
  [[gnu::always_inline]] static float16x8x2_t at(const uint8_t* codes) {
    return {vreinterpretq_f16_u8(vld1q_u8(codes)), vreinterpretq_f16_u8(vld1q_u8(codes + 16))};
  }
};

// Low and high bytes of the values of codes of at most four bits; below, of at most six.
struct FewHalves : HalfCodes {
  explicit FewHalves(const Format& format) : planes_(vld2q_u8(reinterpret_cast<const uint8_t*>(format.halves))) {}

  [[gnu::always_inline]] void look_up(Bytes codes, uint16_t* values) const {
    const auto indices = std::bit_cast<uint8x16_t>(codes);
    vst2q_u8(reinterpret_cast<uint8_t*>(values),
             {vqtbl1q_u8(planes_.val[0], indices), vqtbl1q_u8(planes_.val[1], indices)});
  }

 private:
  uint8x16x2_t planes_;
};

struct ManyHalves : HalfCodes {
  explicit ManyHalves(const Format& format) {
    for (int i = 0; i < 4; ++i) {
      const uint8x16x2_t planes = vld2q_u8(reinterpret_cast<const uint8_t*>(format.halves + 16 * i));
      low_.val[i] = planes.val[0];
      high_.val[i] = planes.val[1];
    }
  }

  [[gnu::always_inline]] void look_up(Bytes codes, uint16_t* values) const {
    const auto indices = std::bit_cast<uint8x16_t>(codes);
    vst2q_u8(reinterpret_cast<uint8_t*>(values), {vqtbl4q_u8(low_, indices), vqtbl4q_u8(high_, indices)});
  }

 private:
  uint8x16x4_t low_, high_;
};

// Sums of a group: two floats per neuron, one for each input of a pair.
template <int rows>
struct GroupSums {
  static constexpr int kVectors = 2 * kBlockNeurons / 4;

  GroupSums() {
    for (auto& row : sums) {
      for (auto& sum : row) sum = vdupq_n_f32(0);
    }
  }

  // out [rows, 16] += sums of pairs · scales
  void add_to(float* out, const float* scales) const {
    for (int row = 0; row < rows; ++row) {
      for (int i = 0; i < kVectors; i += 2, out += 4) {
        const float32x4_t pairs = vpaddq_f32(sums[row][i], sums[row][i + 1]);
        vst1q_f32(out, vfmaq_f32(vld1q_f32(out), pairs, vld1q_f32(scales + 2 * i)));
      }
    }
  }

  float32x4_t sums[rows][kVectors];
};

// sums += x · tile. `x` and `units` point to the tile's first input and group.
template <class Values, int rows>
[[gnu::always_inline]] inline void add_tile(const uint8_t* codes, const uint16_t* x, int64_t stride, const float* units,
                                            int64_t unit_stride, GroupSums<rows>& group) {
  constexpr int kBytes = 16 * sizeof(typename Values::Code);
  float16x8_t halves[rows][2][4] = {};
#pragma GCC unroll 16
  for (int pair = 0; pair < kTileInputs / 2; ++pair) {
    float16x8_t both[rows];
#pragma GCC unroll 2
    for (int row = 0; row < rows; ++row) {
      both[row] = vreinterpretq_f16_u32(vld1q_dup_u32(reinterpret_cast<const uint32_t*>(x + row * stride + 2 * pair)));
    }
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      const float16x8x2_t weights = Values::at(codes + (2 * pair + half) * kBytes);
#pragma GCC unroll 2
      for (int row = 0; row < rows; ++row) {
        float16x8_t *first = &halves[row][pair % 2][2 * half], *second = first + 1;
        *first = vfmaq_f16(*first, weights.val[0], both[row]);
        *second = vfmaq_f16(*second, weights.val[1], both[row]);
      }
    }
  }
#pragma GCC unroll 2
  for (int row = 0; row < rows; ++row) {
    const float unit = units[row * unit_stride];
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      const float16x8_t sum = vaddq_f16(halves[row][0][i], halves[row][1][i]);
      float32x4_t *first = &group.sums[row][2 * i], *second = first + 1;
      *first = vfmaq_n_f32(*first, vcvt_f32_f16(vget_low_f16(sum)), unit);
      *second = vfmaq_n_f32(*second, vcvt_high_f32_f16(sum), unit);
    }
  }
}

// Groups are whole tiles, except the last of a row with one scale.
template <class Values, int rows>
int64_t multiply_rows(const KPanel& k_panel, const Values& values, const HalfActivations& x, int64_t row,
                      uint8_t* scratch, float* out) {
  using Layout = Kind<typename Values::Code, 2, false, false>;
  const int64_t nonzeros = nonzero_codes<Layout>(k_panel), group = k_panel.format->group;
  if (nonzeros < 0) return nonzeros;
  Tiles<Neon, Layout, Values> tiles(k_panel, values, nonzeros, scratch);
  const uint16_t* from = x.x + row * x.stride;
  const float* units = x.units + row * x.unit_stride;
  for (int64_t tile = 0; tile < k_panel.tiles;) {
    const int64_t index = (k_panel.first + tile * kTileInputs) / group, past = (index + 1) * group - k_panel.first;
    const int64_t end = least(k_panel.tiles, (past + kTileInputs - 1) / kTileInputs);
    GroupSums<rows> sums;
    for (; tile < end; ++tile) {
      add_tile<Values, rows>(tiles.next().codes, from + tile * kTileInputs, x.stride, units + tile, x.unit_stride,
                             sums);
    }
    float scales[kBlockNeurons] = {};
    load_scales(k_panel.format->scale, k_panel.scales, index * kBlockNeurons, scales);
    sums.add_to(out + row * kBlockNeurons, scales);
  }
  return nonzeros;
}

template <class Values>
int64_t multiply_all(const KPanel& k_panel, const Values& values, const HalfActivations& x, uint8_t* scratch,
                     float* out) {
  int64_t row = 0, consumed = 0;
  for (; row + 2 <= x.batch; row += 2) consumed = multiply_rows<Values, 2>(k_panel, values, x, row, scratch, out);
  for (; row < x.batch; ++row) consumed = multiply_rows<Values, 1>(k_panel, values, x, row, scratch, out);
  return consumed;
}

int64_t linear_f32_f16_any(const KPanel& k_panel, const HalfActivations& x, float* out, uint8_t* scratch) {
  const Format& format = *k_panel.format;
  if (format.bits == 16) return multiply_all(k_panel, HalfCodes(), x, scratch, out);
  if (format.bits <= 4) return multiply_all(k_panel, FewHalves(format), x, scratch, out);
  if (format.bits <= 6) return multiply_all(k_panel, ManyHalves(format), x, scratch, out);
  if (format.mantissa_bits == 2) return multiply_all(k_panel, UpperBytes(), x, scratch, out);
  return multiply_all(k_panel, ShiftedBytes(), x, scratch, out);
}

TILEPRESS_KERNEL(linear_f32_f16_any);

}  // namespace
}  // namespace tilepress
