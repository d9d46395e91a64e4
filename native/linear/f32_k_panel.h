// y = x · Wᵀ for one block of 16 neurons over a K-panel of inputs, float32 activations and weights of any format; and
// the weights alone. Weights are decoded to float32 tile by tile. For a few rows of activations they stay in registers,
// and a group's scale is applied to its accumulators. For more rows they are decoded once, with their scales, and
// multiplied with every row while they are in the L1 cache. Simd brings what unpack_block.h asks for, and
//   SmallTable: like Table of values.h, for codes of at most four bits;
//   look_up_words(low [16], high [16], codes, values), where bytes can be looked up: a vector of codes below 16;
//   multiply_sparse<Kind>(values, K-panel, x, nonzeros, out), where sparse weights need not become tiles: for up to
//   kFewSparseRows rows of activations.
#pragma once

#include "linear/f32_rows.h"
#include "linear/f32_values.h"
#include "linear/k_panel_tiles.h"
#include "quantize/scales.h"

namespace tilepress {
namespace {

// Rows of activations multiplied together with weights in registers.
#if defined(__AVX512F__)
constexpr int kRowsAtOnce = 8;
#elif defined(__AVX2__) || defined(__aarch64__)
constexpr int kRowsAtOnce = 4;
#else
constexpr int kRowsAtOnce = 2;
#endif
constexpr int kChains = 8;           // independent sums at least, to hide the latency of an addition
constexpr int kDecodedAtOnce = 256;  // inputs; their weights, and a few rows of them, fit the L1 cache

// The scales and zero points of one group of the block, and where in its row it ends.
struct alignas(64) Group {
  float scales[kBlockNeurons], zeros[kBlockNeurons];
  int64_t index, end;
};

// `unit`: what values are too small by.
inline void load_group(const KPanel& k_panel, int64_t group, float unit, Group& to) {
  const int64_t at = group * kBlockNeurons;
  to.index = group;
  to.end = (group + 1) * k_panel.format->group;
  load_scales(k_panel.format->scale, k_panel.scales, at, to.scales);
  for (float& scale : to.scales) scale *= unit;
  if (!k_panel.format->zero_point) return;
  const float step = zero_step(*k_panel.format);
  for (int i = 0; i < kBlockNeurons; ++i) to.zeros[i] = static_cast<float>(k_panel.zeros[at + i]) * step;
}

// The codes of `pack` inputs of one vector of neurons, from element `at` of a tile on; and where they were dropped.
template <class Kind>
struct LaneCodes {
  [[gnu::always_inline]] LaneCodes(const Tile& tile, int at, bool masked)
      : codes(load<typename Kind::Lanes>(tile.codes + at * static_cast<int>(sizeof(typename Kind::Code)))) {
    if (masked) keep = widen(load<typename Kind::KeepLanes>(tile.keep + at));
  }

  // The weights of one of the inputs, but for their scale.
  template <bool masked, class Values>
  [[gnu::always_inline]] Floats weights(const Values& values, int i, Floats zero) const {
    Floats weight = values(codes, i * Kind::code_bits);
    if constexpr (Kind::zero_point) weight -= zero;
    if constexpr (masked) {
      const Int32s all = reinterpret_cast<Int32s>(keep << (31 - 8 * i)) >> 31;
      weight = std::bit_cast<Floats>(std::bit_cast<Int32s>(weight) & all);
    }
    return weight;
  }

  typename Kind::Lanes codes;
  Uint32s keep = {};
};

// Inputs `first` to `end` of a tile, all in one group, as weights [inputs, 16]. Copies of what is constant stay in
// registers: stored weights may alias the originals.
template <class Kind, bool masked, class Values>
[[gnu::noinline]] void decode_inputs(const Values& values_there, const Tile& tile_there, int first, int end,
                                     const Group& group, float* weights) {
  const Values values = values_there;
  const Tile tile = tile_there;
  for (int part = 0; part < kBlockVectors; ++part) {
    const int neuron = part * kLanes;
    const Floats scale = load<Floats>(group.scales + neuron), zero = load<Floats>(group.zeros + neuron);
    for (int input = first; input < end; input += Kind::pack) {
      const LaneCodes<Kind> lanes(tile, input * kBlockNeurons + neuron * Kind::pack, masked);
      for (int i = 0; i < Kind::pack; ++i) {
        Floats weight = lanes.template weights<masked>(values, i, zero);
        if constexpr (Kind::scaled) weight *= scale;
        store(weight, weights + (input + i) * kBlockNeurons + neuron);
      }
    }
  }
}

// Pointers to `rows` rows of activations, of which `count` are there; the others repeat the last.
template <int rows>
struct FewRows {
  FewRows(const FloatActivations<float>& x, int64_t first) : count(static_cast<int>(x.batch)) {
    for (int row = 0; row < rows; ++row) of[row] = x.x + least<int64_t>(row, x.batch - 1) * x.stride + first;
  }
  const float* of[rows];
  int count;
};

// out [rows, 16] += their products with inputs `first` to `end` of a tile, all in one group. Few rows have several
// accumulators each, which take inputs in turn.
template <class Kind, bool masked, int rows, class Values>
[[gnu::noinline]] void multiply_inputs(const Values& values_there, const Tile& tile_there, int first, int end,
                                       const Group& group, const FewRows<rows>& x, float* out) {
  constexpr int kTurns = most(1, kChains / (rows * kBlockVectors)), kStep = most(Kind::pack, kTurns);
  const Values values = values_there;
  const Tile tile = tile_there;
  Floats zeros[kBlockVectors], sums[kTurns][rows][kBlockVectors] = {};
  for (int part = 0; part < kBlockVectors; ++part) zeros[part] = load<Floats>(group.zeros + part * kLanes);
#pragma GCC unroll 1
  for (int input = first; input < end; input += kStep) {
#pragma GCC unroll 8
    for (int step = 0; step < kStep; step += Kind::pack) {
      const int at = (input + step) * kBlockNeurons;
#pragma GCC unroll 4
      for (int part = 0; part < kBlockVectors; ++part) {
        const LaneCodes<Kind> lanes(tile, at + part * kLanes * Kind::pack, masked);
#pragma GCC unroll 4
        for (int i = 0; i < Kind::pack; ++i) {
          const Floats weight = lanes.template weights<masked>(values, i, zeros[part]);
#pragma GCC unroll 8
          for (int row = 0; row < rows; ++row) {
            Floats& sum = sums[(step + i) % kTurns][row][part];
            sum = fma(weight, x.of[row][input + step + i], sum);
          }
        }
      }
    }
  }
#pragma GCC unroll 8
  for (int row = 0; row < rows; ++row) {
    if (row == x.count) break;
#pragma GCC unroll 4
    for (int part = 0; part < kBlockVectors; ++part) {
      float* to = out + row * kBlockNeurons + part * kLanes;
      Floats sum = sums[0][row][part];
      for (int turn = 1; turn < kTurns; ++turn) sum += sums[turn][row][part];
      const Floats before = load<Floats>(to);
      store(Kind::scaled ? fma(sum, load<Floats>(group.scales + part * kLanes), before) : sum + before, to);
    }
  }
}

// Whether tiles may have dropped codes that stand for something else than 0.
template <class Kind, class Values>
constexpr bool kMasks = Kind::zero_point || !requires { requires Values::drops_to_zero(); };

// The tiles of a K-panel, group by group.
template <class Kind, class Values>
class TileGroups {
 public:
  TileGroups(const Values& values, const KPanel& k_panel) : values_(values), k_panel_(k_panel) { begin_at(0); }

  // Calls work<masked>(values, group, begin, end) for the inputs of each group that are in a tile whose first input is
  // `first` of the K-panel. The rare tile with a code that arithmetic would get wrong is looked up.
  template <class Work>
  void visit(const Tile& tile, int64_t first, const Work& work) {
    if constexpr (requires { values_.covers(tile.codes, 0); }) {
      if (!values_.covers(tile.codes, Kind::codes)) {
        begin_at(first);
        for_groups<false>(Table(*k_panel_.format), first, work);
        return begin_at(first + Kind::inputs);
      }
    }
    if constexpr (kMasks<Kind, Values>) {
      if (tile.keep) return for_groups<true>(values_, first, work);
    }
    for_groups<false>(values_, first, work);
  }

  // Of a tile, the last one of a row may lack some.
  int inputs(int64_t first) const { return static_cast<int>(least<int64_t>(Kind::inputs, k_panel_.inputs - first)); }

 private:
  // The next group to be loaded is that of this input.
  void begin_at(int64_t input) {
    group_.end = k_panel_.first + input;
    group_.index = group_.end / k_panel_.format->group - 1;
  }

  template <bool masked, class Any, class Work>
  [[gnu::always_inline]] void for_groups(const Any& values, int64_t first, const Work& work) {
    const int count = inputs(first);
    if constexpr (!Kind::scaled) return work.template operator()<masked>(values, group_, 0, count);
    for (int at = 0, end; at < count; at = end) {
      if (k_panel_.first + first + at >= group_.end) load_group(k_panel_, group_.index + 1, values.unit(), group_);
      end = static_cast<int>(least<int64_t>(count, group_.end - k_panel_.first - first));
      work.template operator()<masked>(values, group_, at, end);
    }
  }

  const Values& values_;
  const KPanel& k_panel_;
  Group group_ = {};
};

// A tile's weights [inputs, 16].
template <class Kind, class Values>
void decode_tile(TileGroups<Kind, Values>& groups, const Tile& tile, int64_t first, float* weights) {
  groups.visit(tile, first, [&]<bool masked>(const auto& values, const Group& group, int begin, int end) {
    decode_inputs<Kind, masked>(values, tile, begin, end, group, weights);
  });
}

// What is the same for all tiles of a K-panel.
template <class Kind, class Values>
class KPanelProduct {
 public:
  KPanelProduct(const Values& values, const KPanel& k_panel, const FloatActivations<float>& x, float* out)
      : groups_(values, k_panel), k_panel_(k_panel), x_(x), out_(out) {
    few_ = x.batch <= kRowsAtOnce && !scales_first(*k_panel.format);
  }

  // A tile whose first input is `first` of the K-panel.
  void add(const Tile& tile, int64_t first) {
    const int inputs = groups_.inputs(first);
    if (few_ && inputs == Kind::inputs) {
      if (x_.batch == 1) return add_few<1>(tile, first);
      if (x_.batch <= kRowsAtOnce / 2) return add_few<kRowsAtOnce / 2>(tile, first);
      return add_few<kRowsAtOnce>(tile, first);
    }
    decode_tile(groups_, tile, first, weights_ + decoded_ * kBlockNeurons);
    decoded_ += inputs;
    if (decoded_ + Kind::inputs <= kDecodedAtOnce && first + inputs < k_panel_.inputs) return;
    multiply_batch<1>({{weights_}, decoded_, {x_.x + first + inputs - decoded_, x_.stride, x_.batch}, {out_}});
    decoded_ = 0;
  }

 private:
  template <int rows>
  void add_few(const Tile& tile, int64_t first) {
    const FewRows<rows> few(x_, first);
    groups_.visit(tile, first, [&]<bool masked>(const auto& values, const Group& group, int begin, int end) {
      multiply_inputs<Kind, masked, rows>(values, tile, begin, end, group, few, out_);
    });
  }

  TileGroups<Kind, Values> groups_;
  const KPanel& k_panel_;
  const FloatActivations<float>& x_;
  float* out_;
  bool few_;
  int decoded_ = 0;  // inputs that wait in weights_
  alignas(64) float weights_[kDecodedAtOnce * kBlockNeurons];
};

// Calls work with `values`, or with a table where arithmetic would get one of the codes wrong.
template <class Code, class Values, class Work>
void with_covered(const Values& values, const KPanel& k_panel, const Code* codes, int64_t count, const Work& work) {
  if constexpr (requires { values.covers(codes, 0); }) {
    if (!values.covers(codes, static_cast<int>(count))) return work(Table(*k_panel.format));
  }
  work(values);
}

template <class Simd, class Kind, class Values>
int64_t multiply_k_panel(const Values& values, const KPanel& k_panel, const FloatActivations<float>& x, float* out,
                         uint8_t* scratch) {
  const int64_t nonzeros = nonzero_codes<Kind>(k_panel);
  if (nonzeros < 0) return nonzeros;
  Tiles<Simd, Kind, Values> tiles(k_panel, values, nonzeros, scratch);
  if constexpr (requires { Simd::kFewSparseRows; } && !Kind::zero_point) {
    if (k_panel.mask && x.batch <= Simd::kFewSparseRows && !scales_first(*k_panel.format)) {
      with_covered(values, k_panel, tiles.nonzeros(), nonzeros, [&](const auto& covering) {
        Simd::template multiply_sparse<Kind>(covering, k_panel, x, tiles.nonzeros(), out);
      });
      return nonzeros;
    }
  }
  KPanelProduct<Kind, Values> product(values, k_panel, x, out);
  for (int64_t first = 0; first < k_panel.inputs; first += Kind::inputs) product.add(tiles.next(), first);
  return nonzeros;
}

template <class Simd, class Kind, class Values>
int64_t decode_k_panel(const Values& values, const KPanel& k_panel, float* weights, uint8_t* scratch) {
  const int64_t nonzeros = nonzero_codes<Kind>(k_panel);
  if (nonzeros < 0) return nonzeros;
  Tiles<Simd, Kind, Values> tiles(k_panel, values, nonzeros, scratch);
  TileGroups<Kind, Values> groups(values, k_panel);
  for (int64_t first = 0; first < k_panel.inputs; first += Kind::inputs) {
    decode_tile(groups, tiles.next(), first, weights + first * kBlockNeurons);
  }
  return nonzeros;
}

// Settles, with templates, all that does not change within a K-panel: returns what work<Kind>(values) does.
template <class Simd, class Work>
struct Settled {
  const KPanel& k_panel;
  const Work& work;

  template <class Code, int pack, bool zero_point, class Values>
  int64_t settle_scale(const Values& values) const {
    if (zero_point || k_panel.format->scale != ScaleType::none || values.unit() != 1) {
      return work.template operator()<Kind<Code, pack, true, zero_point>>(values);
    }
    return work.template operator()<Kind<Code, pack, false, false>>(values);
  }

  template <bool zero_point = false, class Values>
  int64_t settle_pack(const Values& values) const {
    return k_panel.operand_bits == 8 ? settle_scale<uint8_t, 4, zero_point>(values)
                                     : settle_scale<uint8_t, 2, zero_point>(values);
  }

  int64_t look_up() const {
    const Format& format = *k_panel.format;
    if (format.bits > 4) return settle_pack(Table(format));
    if constexpr (requires { Simd::look_up_words(nullptr, nullptr, Bytes{}, nullptr); }) {
      if (k_panel.operand_bits == 16 && Bf16Table<Simd>::fit(format)) {
        return settle_scale<uint16_t, 2, false>(Bf16Table<Simd>(format));
      }
    }
    return settle_pack(typename Simd::SmallTable(format));
  }

  template <class Values>
  int64_t settle_known() const {
    return settle_scale<uint8_t, 2, false>(Values(*k_panel.format));
  }

  int64_t operator()() const {
    const Format& format = *k_panel.format;
    switch (format.rounding) {
      case Rounding::integer:
        return format.zero_point ? settle_pack<true>(Integers<false>(format)) : settle_pack(Integers<true>(format));
      case Rounding::minifloat:
        if (format.bits <= 4) return look_up();
        if (k_panel.operand_bits == 16) {
          if (Minifloats<8, 3>::fit(format)) return settle_known<Minifloats<8, 3>>();
          if (Minifloats<8, 2>::fit(format)) return settle_known<Minifloats<8, 2>>();
        }
        return Minifloats<>::fit(format) ? settle_pack(Minifloats<>(format)) : look_up();
      case Rounding::table:
        return look_up();
      case Rounding::bf16:
        return settle_scale<uint16_t, 2, false>(Bf16());
      case Rounding::fp16:
        return settle_scale<uint16_t, 2, false>(Fp16());
    }
    return -1;
  }
};

template <class Simd>
int64_t linear_k_panel(const KPanel& k_panel, const FloatActivations<float>& x, float* out, uint8_t* scratch) {
  const auto work = [&]<class Kind>(const auto& values) {
    return multiply_k_panel<Simd, Kind>(values, k_panel, x, out, scratch);
  };
  return Settled<Simd, decltype(work)>{k_panel, work}();
}

template <class Simd>
int64_t decode_any(const KPanel& k_panel, float* weights, uint8_t* scratch) {
  const auto work = [&]<class Kind>(const auto& values) {
    return decode_k_panel<Simd, Kind>(values, k_panel, weights, scratch);
  };
  return Settled<Simd, decltype(work)>{k_panel, work}();
}

}  // namespace
}  // namespace tilepress
