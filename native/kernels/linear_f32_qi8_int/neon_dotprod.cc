// Three ways, all with the same sums: dense 4- and 8-bit codes straight from their bytes; sparse signed codes expanded
// in registers; everything else tile by tile as linear_block.h does it.
#include "kernels/linear_f32_qi8_int/linear_block.h"
#include "kernels/unpack/neon.h"

namespace tilepress {
namespace {

constexpr int kParts = 4;  // vectors of four neurons in a block

// Sixteen neurons are four vectors of four, each with four operands a neuron; `sdot` takes the four activations that
// they all meet from one lane of x.
struct NeonDot : Neon {
  static void dot(const int8_t* operands, const int8_t* x, int rows, int32_t* sums) {
    int32x4_t sum[kParts] = {vld1q_s32(sums), vld1q_s32(sums + 4), vld1q_s32(sums + 8), vld1q_s32(sums + 12)};
    for (int row = 0; row < rows; row += 4, x += 16, operands += 4 * kVectorBytes) {
      const int8x16_t lanes = vld1q_s8(x);
      for (int part = 0; part < kParts; ++part) {
        const int8_t* at = operands + 16 * part;
        sum[part] = vdotq_laneq_s32(sum[part], vld1q_s8(at), lanes, 0);
        sum[part] = vdotq_laneq_s32(sum[part], vld1q_s8(at + kVectorBytes), lanes, 1);
        sum[part] = vdotq_laneq_s32(sum[part], vld1q_s8(at + 2 * kVectorBytes), lanes, 2);
        sum[part] = vdotq_laneq_s32(sum[part], vld1q_s8(at + 3 * kVectorBytes), lanes, 3);
      }
    }
    for (int part = 0; part < kParts; ++part) vst1q_s32(sums + 4 * part, sum[part]);
  }
};

template <int batch>
struct Sums {
  int32x4_t of[batch][kParts];

  void clear() {
    for (auto& row : of) {
      for (auto& sum : row) sum = vdupq_n_s32(0);
    }
  }

  template <int lane>
  [[gnu::always_inline]] void add(int part, int8x16_t operands, const int8x16_t* x) {
    for (int row = 0; row < batch; ++row) of[row][part] = vdotq_laneq_s32(of[row][part], operands, x[row], lane);
  }
};

template <int batch>
void load_x(const LinearBlock& block, int64_t row, int64_t input, int8x16_t* x) {
  for (int i = 0; i < batch; ++i) x[i] = vld1q_s8(block.x + (row + i) * block.x_stride + input);
}

// The sixteen scales of a group, four at a time.
struct Bf16Scales {
  Bf16Scales(const LinearBlock& block, int64_t group)
      : at(static_cast<const uint16_t*>(block.scales) + group * kBlockNeurons) {}

  float32x4_t part(int index) const { return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(at + 4 * index), 16)); }

  const uint16_t* at;
};

struct OtherScales {
  OtherScales(const LinearBlock& block, int64_t group) { load_scales(block, group, all); }

  float32x4_t part(int index) const { return vld1q_f32(all + 4 * index); }

  float all[kBlockNeurons];
};

template <int batch>
struct Totals {
  float32x4_t of[batch][kParts];

  Totals() {
    for (auto& row : of) {
      for (auto& total : row) total = vdupq_n_f32(0);
    }
  }

  // Ends a group: total += float(sum) * scale, of sums that are 2^shift times too large.
  template <int shift, bool zero_points, class Scales>
  [[gnu::always_inline]] void add(const LinearBlock& block, int64_t first_row, int64_t group, const Sums<batch>& sums) {
    const Scales scales(block, group);
    for (int part = 0; part < kParts; ++part) {
      const float32x4_t scale = scales.part(part);
      for (int row = 0; row < batch; ++row) {
        int32x4_t dot = sums.of[row][part];
        if constexpr (shift > 0) dot = vshrq_n_s32(dot, shift);
        if constexpr (zero_points) dot = less_zeros(block, first_row + row, group, part, dot);
        of[row][part] = vaddq_f32(of[row][part], vmulq_f32(vcvtq_f32_s32(dot), scale));
      }
    }
  }

  static int32x4_t less_zeros(const LinearBlock& block, int64_t row, int64_t group, int part, int32x4_t dot) {
    int32_t zeros[4];
    for (int i = 0; i < 4; ++i) zeros[i] = block.zeros[group * kBlockNeurons + 4 * part + i] - lowered(*block.format);
    return vmlsq_n_s32(dot, vld1q_s32(zeros), block.group_sums[row * block.groups + group]);
  }

  void store(float* out) const {
    for (int row = 0; row < batch; ++row) {
      for (int part = 0; part < kParts; ++part) vst1q_f32(out + row * kBlockNeurons + 4 * part, of[row][part]);
    }
  }
};

// Sixteen inputs of dense 4-bit codes are two vectors of 64 bytes, two tile rows in each. Signed ones are left in the
// high half of a byte, sixteen times too large; the group's end puts that right.
template <bool negative>
struct Dense4 {
  static constexpr int kBytes = 2 * kVectorBytes, kShift = negative ? 4 : 0;
  static constexpr bool kZeroPoints = !negative;

  template <int batch>
  [[gnu::always_inline]] static void step(const uint8_t* packed, const int8x16_t* x, Sums<batch>& sums) {
    for (int part = 0; part < kParts; ++part) {
      const uint8x16_t first = vld1q_u8(packed + 16 * part), second = vld1q_u8(packed + kVectorBytes + 16 * part);
      sums.template add<0>(part, low(first), x);
      sums.template add<1>(part, high(first), x);
      sums.template add<2>(part, low(second), x);
      sums.template add<3>(part, high(second), x);
    }
  }

  static int8x16_t low(uint8x16_t pairs) {
    return vreinterpretq_s8_u8(negative ? vshlq_n_u8(pairs, 4) : vandq_u8(pairs, vdupq_n_u8(15)));
  }
  static int8x16_t high(uint8x16_t pairs) {
    return vreinterpretq_s8_u8(negative ? vandq_u8(pairs, vdupq_n_u8(0xf0)) : vshrq_n_u8(pairs, 4));
  }
};

template <bool negative>
struct Dense8 {
  static constexpr int kBytes = 4 * kVectorBytes, kShift = 0;
  static constexpr bool kZeroPoints = !negative;

  template <int batch>
  [[gnu::always_inline]] static void step(const uint8_t* packed, const int8x16_t* x, Sums<batch>& sums) {
    for (int part = 0; part < kParts; ++part, packed += 16) {
      sums.template add<0>(part, operands(packed), x);
      sums.template add<1>(part, operands(packed + kVectorBytes), x);
      sums.template add<2>(part, operands(packed + 2 * kVectorBytes), x);
      sums.template add<3>(part, operands(packed + 3 * kVectorBytes), x);
    }
  }

  static int8x16_t operands(const uint8_t* codes) {
    const uint8x16_t raw = vld1q_u8(codes);
    return vreinterpretq_s8_u8(negative ? raw : veorq_u8(raw, vdupq_n_u8(0x80)));
  }
};

template <class Codes, int batch>
[[gnu::always_inline]] inline void dense_step(const LinearBlock& block, int64_t row, int64_t input, Sums<batch>& sums) {
  constexpr int kAhead = 512;  // bytes; hides what the hardware's own prefetching leaves
  const uint8_t* packed = block.packed + input / kStepInputs * Codes::kBytes;
  int8x16_t x[batch];
  load_x<batch>(block, row, input, x);
  for (int line = 0; line < Codes::kBytes; line += kVectorBytes) __builtin_prefetch(packed + kAhead + line);
  Codes::step(packed, x, sums);
}

template <class Codes, class Scales, int batch>
void dense_rows(const LinearBlock& block, int64_t row, float* out) {
  const int64_t size = block.format->group, cols = block.cols, groups = block.groups;
  Totals<batch> totals;
  for (int64_t group = 0; group < groups; ++group) {
    Sums<batch> sums;
    sums.clear();
    const int64_t end = least((group + 1) * size, cols);
    for (int64_t input = group * size; input < end; input += kStepInputs) dense_step<Codes>(block, row, input, sums);
    totals.template add<Codes::kShift, Codes::kZeroPoints, Scales>(block, row, group, sums);
  }
  totals.store(out);
}

// Expanding 64 codes: how many are kept before each eighth of them comes from one multiplication, so that the eight
// look-ups need not wait for each other.
struct Places {
  explicit Places(const uint8_t* mask) {
    std::memcpy(&bits, mask, 8);
    const uint64_t counts = vget_lane_u64(vreinterpret_u64_u8(vcnt_u8(vcreate_u8(bits))), 0);
    const uint64_t ends = counts * 0x0101010101010101;
    starts = ends << 8;
    total = static_cast<int64_t>(ends >> 56);
  }

  int8x8_t expand(const uint8_t* kept, int eighth) const {
    const uint8x8_t shuffle = vld1_u8(kShuffles.expand[bits >> 8 * eighth & 0xff]);
    return vreinterpret_s8_u8(vtbl1_u8(vld1_u8(kept + (starts >> 8 * eighth & 0xff)), shuffle));
  }

  uint64_t bits, starts;
  int64_t total;
};

template <class Scales, int batch>
void sparse_rows(const LinearBlock& block, int64_t row, const uint8_t* kept, float* out) {
  const uint8_t* mask = block.mask;
  const int64_t size = block.format->group, cols = block.cols, groups = block.groups;
  Totals<batch> totals;
  int64_t input = 0;
  for (int64_t group = 0; group < groups; ++group) {
    const int64_t end = least((group + 1) * size, cols);
    Sums<batch> sums;
    sums.clear();
    for (; input < end; input += kStepInputs) {
      int8x16_t x[batch];
      load_x<batch>(block, row, input, x);
      const auto tile_row = [&]<int lane>() {
        const Places places(mask);
        for (int part = 0; part < kParts; ++part) {
          sums.template add<lane>(part, vcombine_s8(places.expand(kept, 2 * part), places.expand(kept, 2 * part + 1)),
                                  x);
        }
        kept += places.total;
        mask += 8;
      };
      tile_row.template operator()<0>();
      tile_row.template operator()<1>();
      tile_row.template operator()<2>();
      tile_row.template operator()<3>();
    }
    totals.template add<0, false, Scales>(block, row, group, sums);
  }
  totals.store(out);
}

// Four rows of activations at a time share what is read of the weights.
template <class Rows>
void in_fours(const LinearBlock& block, float* out, const Rows& rows) {
  int64_t row = 0;
  for (; row + 4 <= block.batch; row += 4) rows.template operator()<4>(row, out + row * kBlockNeurons);
  for (; row + 2 <= block.batch; row += 2) rows.template operator()<2>(row, out + row * kBlockNeurons);
  for (; row < block.batch; ++row) rows.template operator()<1>(row, out + row * kBlockNeurons);
}

template <class Codes, class Scales>
void dense_with(const LinearBlock& block, float* out) {
  in_fours(block, out, [&]<int batch>(int64_t row, float* to) { dense_rows<Codes, Scales, batch>(block, row, to); });
}

template <class Codes>
void dense(const LinearBlock& block, float* out) {
  if (block.format->scale == ScaleType::bf16) return dense_with<Codes, Bf16Scales>(block, out);
  dense_with<Codes, OtherScales>(block, out);
}

void sparse(const LinearBlock& block, float* out, uint8_t* scratch) {
  const uint8_t* kept = block.packed;
  if (block.format->bits < 8) {
    Neon::unpack_stream(block.format->bits, block.packed, block.kept, scratch);
    to_operands(*block.format, scratch, block.kept);
    kept = scratch;
  }
  in_fours(block, out,
           [&]<int batch>(int64_t row, float* to) { sparse_rows<OtherScales, batch>(block, row, kept, to); });
}

}  // namespace

void neon_dotprod::linear_int8_block(const LinearBlock& block, float* out, int32_t* sums, uint8_t* scratch) {
  const int bits = block.format->bits;
  const bool negative = !block.format->zero_point;
  if (block.mask && negative) return sparse(block, out, scratch);
  if (!block.mask && bits == 4) return negative ? dense<Dense4<true>>(block, out) : dense<Dense4<false>>(block, out);
  if (!block.mask && bits == 8) return negative ? dense<Dense8<true>>(block, out) : dense<Dense8<false>>(block, out);
  linear_block_with<NeonDot>(block, out, sums, scratch);
}

}  // namespace tilepress
