// y = x · Wᵀ for one block of 16 neurons over a span of inputs, float32 activations and weights of any format. In a
// nameless namespace for the reason that pack_block.h gives. Tile by tile, weights become float32 once, exactly as
// dequantising has them, and are multiplied with every row of activations while they are in the nearest cache.
// Simd brings what unpack_block.h asks for, and
//   to_floats(halves): fp16 to float32, subnormals, infinities and NaN included;
//   SmallTable: like Table of values.h, for codes of at most four bits.
#pragma once

#include "kernels/linear_f32_f32_any/fields.h"
#include "kernels/linear_f32_f32_any/values.h"
#include "kernels/scales.h"
#include "kernels/unpack/unpack_block.h"

namespace tilepress {
namespace {

constexpr int kMaxTileInputs = tile_inputs(8);

// Rows of activations multiplied together: as many as leave registers for the weights; and how many sums at least, so
// that an addition need not wait for the one before.
#if defined(__AVX512F__)
constexpr int kRowsAtOnce = 8;
#elif defined(__AVX2__) || defined(__aarch64__)
constexpr int kRowsAtOnce = 4;
#else
constexpr int kRowsAtOnce = 2;
#endif
constexpr int kChains = 8;

// The scales and zero points of one group of the block.
struct alignas(64) Group {
  float scales[kBlockNeurons], zeros[kBlockNeurons];
  int64_t index;
};

// The type is settled before the loop over neurons, which then is a few vector instructions.
inline void load_scales(ScaleType type, const void* scales, int64_t at, float* out) {
  const auto load_known = [&](ScaleType known) __attribute__((always_inline)) {
    for (int neuron = 0; neuron < kBlockNeurons; ++neuron) out[neuron] = load_scale(known, scales, at + neuron);
  };
  switch (type) {
    case ScaleType::e8m0:
      return load_known(ScaleType::e8m0);
    case ScaleType::bf16:
      return load_known(ScaleType::bf16);
    case ScaleType::fp16:
      return load_known(ScaleType::fp16);
    case ScaleType::fp32:
      return load_known(ScaleType::fp32);
    case ScaleType::none:
      return load_known(ScaleType::none);
  }
}

inline void load_group(const SpanWeights& span, int64_t group, Group& to) {
  const int64_t at = group * kBlockNeurons;
  to.index = group;
  load_scales(span.format->scale, span.scales, at, to.scales);
  if (!span.format->zero_point) return;
  const float step = zero_step(*span.format);
  for (int i = 0; i < kBlockNeurons; ++i) to.zeros[i] = static_cast<float>(span.zeros[at + i]) * step;
}

// How a tile lies in memory, `pack` inputs of a neuron side by side in a lane, and what is done to its values.
template <class CodeType, int inputs_a_lane, bool with_scale, bool with_zero>
struct Kind {
  using Code = CodeType;
  static constexpr int pack = inputs_a_lane;
  static constexpr bool scaled = with_scale, zero_point = with_zero;
  static constexpr int inputs = pack * kBlockNeurons;  // of a tile, as are
  static constexpr int codes = inputs * kBlockNeurons;
  static constexpr int code_bits = 8 * sizeof(Code);
  using Lanes = std::conditional_t<pack * sizeof(Code) == 4, Words, Halves>;
  using KeepLanes = std::conditional_t<pack == 4, Words, Halves>;
};

// A tile's codes and, where some are dropped, keep bytes.
struct Tile {
  const uint8_t *codes, *keep;
};

// The weights of `pack` inputs of one vector of neurons, from element `at` of a tile on.
template <class Kind, bool sparse, class Values>
[[gnu::always_inline]] inline void decode_lanes(const Values& values, const Tile& tile, int at, Floats scale,
                                                Floats zero, float* weights) {
  const auto lanes = load<typename Kind::Lanes>(tile.codes + at * static_cast<int>(sizeof(typename Kind::Code)));
  for (int i = 0; i < Kind::pack; ++i) {
    Floats weight = values(lanes, i * Kind::code_bits);
    if constexpr (Kind::zero_point) weight -= zero;
    if constexpr (Kind::scaled) weight *= scale;
    if constexpr (sparse) {
      const Words keep = widen(load<typename Kind::KeepLanes>(tile.keep + at));
      const SignedWords all = reinterpret_cast<SignedWords>(keep << (31 - 8 * i)) >> 31;
      weight = std::bit_cast<Floats>(std::bit_cast<SignedWords>(weight) & all);
    }
    store(weight, weights + i * kBlockNeurons);
  }
}

// Inputs `first` to `end` of a tile, all in one group. Copies of what is constant stay in registers: for all the
// compiler knows, storing weights could change the originals.
template <class Kind, bool sparse, class Values>
void decode_inputs(const Values& values_there, const Tile& tile_there, int first, int end, const Group& group,
                   float* weights) {
  const Values values = values_there;
  const Tile tile = tile_there;
  for (int part = 0; part < kParts; ++part) {
    const int neuron = part * kLanes;
    const Floats scale = load<Floats>(group.scales + neuron), zero = load<Floats>(group.zeros + neuron);
    for (int input = first; input < end; input += Kind::pack) {
      const int at = input * kBlockNeurons + neuron * Kind::pack;
      decode_lanes<Kind, sparse>(values, tile, at, scale, zero, weights + input * kBlockNeurons + neuron);
    }
  }
}

// Weights [inputs, 16] of a tile whose first input is `first` of its row. `group` is the last one that was needed.
template <class Kind, class Values>
void decode_groups(const Values& values, const SpanWeights& span, const Tile& tile, int64_t first, int inputs,
                   Group& group, float* weights) {
  const auto decode = tile.keep ? decode_inputs<Kind, true, Values> : decode_inputs<Kind, false, Values>;
  if constexpr (!Kind::scaled) return decode(values, tile, 0, inputs, group, weights);
  const int64_t size = span.format->group;
  for (int at = 0, end; at < inputs; at = end) {
    const int64_t index = (first + at) / size;
    if (index != group.index) load_group(span, index, group);
    end = static_cast<int>(least<int64_t>(inputs, (index + 1) * size - first));
    decode(values, tile, at, end, group, weights);
  }
}

// The rare tile with a code that arithmetic would get wrong is looked up.
template <class Kind, class Values>
void decode_tile(const Values& values, const SpanWeights& span, const Tile& tile, int64_t first, int inputs,
                 Group& group, float* weights) {
  if constexpr (requires { values.covers(tile.codes, 0); }) {
    if (!values.covers(tile.codes, Kind::codes)) {
      return decode_groups<Kind>(Table(*span.format), span, tile, first, inputs, group, weights);
    }
  }
  decode_groups<Kind>(values, span, tile, first, inputs, group, weights);
}

// out [rows, 16] += x [rows, inputs] · weights [inputs, 16]. Few rows have several sums each, of every so many inputs.
template <int rows>
void multiply_rows(const float* x, int64_t stride, const float* weights, int inputs, float* out) {
  constexpr int turns = most(1, kChains / (rows * kParts));
  Floats sums[turns][rows][kParts] = {};
  const auto add = [&](int input, int turn) __attribute__((always_inline)) {
    for (int part = 0; part < kParts; ++part) {
      const Floats weight = load<Floats>(weights + input * kBlockNeurons + part * kLanes);
      for (int row = 0; row < rows; ++row) sums[turn][row][part] += weight * x[row * stride + input];
    }
  };
  int input = 0;
  for (; input + turns <= inputs; input += turns) {
    for (int turn = 0; turn < turns; ++turn) add(input + turn, turn);
  }
  for (; input < inputs; ++input) add(input, 0);
  for (int row = 0; row < rows; ++row) {
    for (int part = 0; part < kParts; ++part) {
      float* to = out + row * kBlockNeurons + part * kLanes;
      Floats sum = load<Floats>(to);
      for (int turn = 0; turn < turns; ++turn) sum += sums[turn][row][part];
      store(sum, to);
    }
  }
}

// Every row, as many at once as there are left.
template <int rows>
void multiply_batch(const FloatActivations<float>& x, int64_t first, int64_t row, const float* weights, int inputs,
                    float* out) {
  for (; row + rows <= x.batch; row += rows) {
    multiply_rows<rows>(x.x + row * x.stride + first, x.stride, weights, inputs, out + row * kBlockNeurons);
  }
  if constexpr (rows > 1) multiply_batch<rows / 2>(x, first, row, weights, inputs, out);
}

// How many codes the span has, or -1 where they would be more than the block has left.
template <class Kind>
int64_t kept_codes(const SpanWeights& span) {
  if (!span.mask) return 0;
  const int64_t count = count_bits(span.mask, span.tiles * Kind::codes / 8);
  return span.taken + count > span.limit ? -1 : count;
}

// A span's tiles, one after the other.
template <class Simd, class Kind>
class Tiles {
 public:
  Tiles(const SpanWeights& span, int64_t kept, uint8_t* scratch)
      : bits_(span.format->bits), packed_(span.packed), mask_(span.mask) {
    if (mask_) unpack_kept(span.taken, kept, scratch);
  }

  Tile next() {
    if (mask_) {
      kept_ += Simd::expand(kept_, mask_, Kind::codes, codes_, keep_);
      mask_ += Kind::codes / 8;
      return {reinterpret_cast<const uint8_t*>(codes_), keep_};
    }
    const uint8_t* from = packed_;
    packed_ += Kind::codes / 8 * bits_;
    if (bits_ >= 8) return {from, nullptr};
    unpack_lines(bits_, Kind::codes / kLineCodes, from, reinterpret_cast<uint8_t*>(codes_));
    return {reinterpret_cast<const uint8_t*>(codes_), nullptr};
  }

 private:
  using Code = typename Kind::Code;

  // The span's codes need not start on a byte, but every eighth code does. Expanding may look at one more than there
  // are.
  void unpack_kept(int64_t taken, int64_t count, uint8_t* scratch) {
    Code* kept = reinterpret_cast<Code*>(scratch);
    if constexpr (sizeof(Code) == 2) {
      std::memcpy(kept, packed_ + taken * 2, static_cast<size_t>(count) * 2);
    } else {
      Simd::unpack_stream(bits_, packed_ + taken / 8 * bits_, taken % 8 + count, kept);
      kept += taken % 8;
    }
    kept[count] = 0;
    kept_ = kept;
  }

  int bits_;
  const uint8_t *packed_, *mask_;
  const Code* kept_ = nullptr;
  alignas(64) Code codes_[kMaxTileBytes / sizeof(Code)];
  alignas(64) uint8_t keep_[kMaxTileBytes];
};

template <class Simd, class Kind, class Values>
int64_t multiply_span(const Values& values, const SpanWeights& span, const FloatActivations<float>& x, float* out,
                      uint8_t* scratch) {
  const int64_t kept = kept_codes<Kind>(span);
  if (kept < 0) return kept;
  alignas(64) float weights[kMaxTileInputs * kBlockNeurons];
  Group group = {};
  group.index = -1;
  Tiles<Simd, Kind> tiles(span, kept, scratch);
  for (int64_t first = 0; first < span.inputs; first += Kind::inputs) {
    const int inputs = static_cast<int>(least<int64_t>(Kind::inputs, span.inputs - first));
    decode_tile<Kind>(values, span, tiles.next(), span.first + first, inputs, group, weights);
    multiply_batch<kRowsAtOnce>(x, first, 0, weights, inputs, out);
  }
  return kept;
}

// Settles, with templates, all that does not change within a span.
template <class Simd>
struct LinearSpan {
  const SpanWeights& span;
  const FloatActivations<float>& x;
  float* out;
  uint8_t* scratch;

  template <class Code, int pack, bool zero_point, class Values>
  int64_t settle_scale(const Values& values) const {
    if (zero_point || span.format->scale != ScaleType::none) {
      return multiply_span<Simd, Kind<Code, pack, true, zero_point>>(values, span, x, out, scratch);
    }
    return multiply_span<Simd, Kind<Code, pack, false, false>>(values, span, x, out, scratch);
  }

  template <bool zero_point = false, class Values>
  int64_t settle_pack(const Values& values) const {
    return span.operand_bits == 8 ? settle_scale<uint8_t, 4, zero_point>(values)
                                  : settle_scale<uint8_t, 2, zero_point>(values);
  }

  int64_t look_up() const {
    if (span.format->bits <= 4) return settle_pack(typename Simd::SmallTable(*span.format));
    return settle_pack(Table(*span.format));
  }

  int64_t operator()() const {
    const Format& format = *span.format;
    switch (format.rounding) {
      case Rounding::integer:
        return format.zero_point ? settle_pack<true>(Integers<false>(format)) : settle_pack(Integers<true>(format));
      case Rounding::minifloat:
        return format.bits > 4 && Minifloats<Simd>::fit(format) ? settle_pack(Minifloats<Simd>(format)) : look_up();
      case Rounding::table:
        return look_up();
      case Rounding::bf16:
        return settle_scale<uint16_t, 2, false>(Bf16());
      case Rounding::fp16:
        return settle_scale<uint16_t, 2, false>(Fp16<Simd>());
    }
    return -1;
  }
};

}  // namespace
}  // namespace tilepress
