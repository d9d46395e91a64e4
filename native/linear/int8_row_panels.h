// Row panels of int8 activations × blocks of int8 tiles over a K-panel; int8_k_panel.h defines the results.
//
// Tiles, the weights of one or two blocks, provides
//   prepare<both>(tile)  called for every tile, in order, one or two tiles before it is used; also past the last
//   at(block, tile)      address
//   kPredecoded          whether all tiles were decoded before
//   kFactor              operands ÷ weights
//   kHasZeroPoints
// Unit: see tile_registers.h; it also provides
//   add_segment_rows<factor>(weights, x, segment, row, rows, high, low or null, sums)   add_segment for several rows
//   Sums<factor, units, zeros>   accumulators of one row panel:
//     add(weights, x, segment index, group, row, dots [16, 16])   add_segment for all rows
//     add_to(out, rows), load(from, rows), store(to, rows)
#pragma once

#include "linear/int8_k_panel.h"
#include "matrix_unit/group_pipeline.h"
#include "matrix_unit/tile_registers.h"

namespace tilepress {
namespace {

// Tiles decoded before.
template <HasZeroPoints zero_points>
class PredecodedTiles {
 public:
  static constexpr bool kPredecoded = true;
  static constexpr int kFactor = 1;
  static constexpr HasZeroPoints kHasZeroPoints = zero_points;

  explicit PredecodedTiles(const IntegerProduct& product) : product_(product) {}
  template <bool both>
  void prepare(int64_t) {}
  const int8_t* at(int block, int64_t tile) const { return product_.tiles[block] + tile * kMaxTileBytes; }

 private:
  const IntegerProduct& product_;
};

// One row panel and one block; the base of RowPanels of group_pipeline.h.
template <class Sums, class Tiles>
class Int8RowPanel {
 public:
  using Product = int32_t;

  Int8RowPanel(const IntegerProduct& product, Tiles& tiles, int block, int64_t row)
      : weights_(*product.weights[block]),
        block_(block),
        activations_(product.x),
        tiles_(tiles),
        scale_(weights_, product.x.segment),
        first_group_(weights_.first / weights_.format->group),
        x_(product.x.limbs[0] + row / kTileRows * product.row_panel_stride),
        out_(product.out[block] + row * kBlockNeurons),
        row_(row),
        rows_(least<int64_t>(product.x.batch - row, kTileRows)),
        in_parts_(product.in_parts),
        segments_(in_parts_ ? kNoBreak : product.k_panel / product.x.segment),
        left_(segments_) {
    if (in_parts_ && !product.first) sums_.load(out_, rows_);
  }

  [[gnu::always_inline]] void add(const int32_t* dots) {
    sums_.add(weights_, activations_, index_++, first_group_ + scale_.next(), row_, dots);
    --left_;
  }
  int64_t segments_left() const { return left_; }  // until the end of the K-panel
  [[gnu::always_inline]] void end_k_panel() {
    sums_.add_to(out_, rows_);
    sums_ = Sums();
    left_ = segments_;
  }
  [[gnu::always_inline]] void finish() { in_parts_ ? sums_.store(out_, rows_) : end_k_panel(); }
  int64_t rows() const { return rows_; }
  const int8_t* x(int64_t tile) const { return x_ + tile * kMaxTileBytes; }
  static constexpr int64_t x_stride() { return kVectorBytes; }
  const int8_t* weights(int64_t tile) const { return tiles_.at(block_, tile); }
  [[gnu::always_inline]] void prepare(int64_t tile) { tiles_.template prepare<false>(tile); }

 private:
  const KPanel& weights_;
  int block_;
  const IntegerActivations& activations_;
  Tiles& tiles_;
  Sums sums_;
  ScaleIndex scale_;
  int64_t first_group_;
  const int8_t* x_;
  float* out_;
  int64_t row_, rows_;
  bool in_parts_;
  int64_t segments_, left_, index_ = 0;
};

// Segments of whole tiles.
template <class Sums, class Tiles>
class WholeRowPanel : public Int8RowPanel<Sums, Tiles> {
 public:
  WholeRowPanel(const IntegerProduct& product, Tiles& tiles, int block, int64_t row)
      : Int8RowPanel<Sums, Tiles>(product, tiles, block, row),
        steps_(product.weights[block]->tiles,
               least(product.x.segment, product.weights[block]->inputs + kTileInputs - 1) / kTileInputs) {}

  int64_t groups() const { return steps_.groups(); }
  template <int tile, class Unit>
  [[gnu::always_inline]] void multiply(Unit& unit) {
    steps_.template multiply<tile>(unit, *this);
  }
  // Ends K-panels here, not in on_break: they may have an odd number of segments.
  [[gnu::always_inline]] void add(const int32_t* dots) {
    Int8RowPanel<Sums, Tiles>::add(dots);
    if (!this->segments_left()) this->end_k_panel();
  }
  static int64_t until_break() { return kNoBreak; }
  static void on_break() {}

 private:
  WholeTiles steps_;
};

// Segments of half a tile: eight rows of weights, 32 bytes of each row of activations. A K-panel has whole tiles, so an
// even number of segments.
template <class Sums, class Tiles>
class HalfRowPanel : public Int8RowPanel<Sums, Tiles> {
 public:
  HalfRowPanel(const IntegerProduct& product, Tiles& tiles, int block, int64_t row)
      : Int8RowPanel<Sums, Tiles>(product, tiles, block, row),
        groups_((product.weights[block]->inputs + kTileInputs / 2 - 1) / (kTileInputs / 2)) {
    this->prepare(0);
  }

  int64_t groups() const { return groups_; }
  int64_t until_break() const { return this->segments_left(); }
  [[gnu::always_inline]] void on_break() { this->end_k_panel(); }
  template <int tile, class Unit>
  [[gnu::always_inline]] void multiply(Unit& unit) {
    unit.template zero<tile>();
    unit.template load<4>(this->x(tile_) + tile * (kTileInputs / 2));
    unit.template load<6>(this->weights(tile_) + tile * (kMaxTileBytes / 2));
    unit.template add_product<tile, 4, 6>();
    if constexpr (tile == 0) {
      this->prepare(tile_ + 1);
    } else {
      ++tile_;
    }
  }

 private:
  int64_t groups_, tile_ = 0;
};

// Two blocks × two row panels at a time, or the two limbs of one row panel: every tile loaded is used twice. Predecoded
// tiles with short segments, whose sums are scaled after each product, go one by one through the pipeline.
template <class Unit, class Tiles>
class Int8Multiplier {
 public:
  Int8Multiplier(Unit& unit, const IntegerProduct& product, Tiles& tiles)
      : unit_(unit), product_(product), tiles_(tiles), inputs_(inputs_of(product.x)) {}

  // Call once before several products with the same activations.
  static void begin(Unit& unit, const IntegerActivations& x) {
    unit.begin(static_cast<int>(least<int64_t>(x.batch, kTileRows)), inputs_of(x));
  }

  void run() {
    const int64_t rows = product_.x.batch;
    const int64_t at_once = limbs() ? kTileRows : 2 * kTileRows;
    for (int64_t row = 0; row < rows; row += at_once) {
      limbs() || row + kTileRows < rows ? run_row_panels<true>(row) : run_row_panels<false>(row);
    }
  }

 private:
  using Sums = float[2][kTileRows * kBlockNeurons];  // of a K-panel, per row panel

  static int inputs_of(const IntegerActivations& x) {
    return x.segment == kTileInputs / 2 ? kTileInputs / 2 : kTileInputs;
  }
  bool limbs() const { return product_.x.limb_count == 2; }

  template <bool two_row_panels>
  void run_row_panels(int64_t row) {
    constexpr int64_t kShort = 2 * kTileInputs;
    const int blocks = product_.weights[1] ? 2 : 1;
    const bool one_by_one = Tiles::kPredecoded ? !two_row_panels || (!limbs() && product_.x.segment < kShort)
                                               : !two_row_panels && blocks == 1;
    if (!one_by_one)
      return blocks == 2 ? run_blocks<two_row_panels, true>(row) : run_blocks<two_row_panels, false>(row);
    for (int row_panel = 0; row_panel < 1 + two_row_panels; ++row_panel) {
      for (int block = 0; block < blocks; ++block) run_one(block, row + row_panel * kTileRows);
    }
  }

  void run_one(int block, int64_t row) {
    const bool units = product_.x.units && !product_.x.one_unit;
    if constexpr (Tiles::kHasZeroPoints != HasZeroPoints::never) {
      if (Tiles::kHasZeroPoints == HasZeroPoints::always || product_.weights[block]->zeros) {
        return units ? run_one<true, true>(block, row) : run_one<false, true>(block, row);
      }
    }
    if constexpr (Tiles::kHasZeroPoints != HasZeroPoints::always) {
      units ? run_one<true, false>(block, row) : run_one<false, false>(block, row);
    }
  }

  template <bool units, bool zeros>
  void run_one(int block, int64_t row) {
    using Sums = typename Unit::template Sums<Tiles::kFactor, units, zeros>;
    const auto run = [&](auto row_panel) {
      multiply_row_panel(unit_, row_panel);
      row_panel.finish();
    };
    inputs_ < kTileInputs ? run(HalfRowPanel<Sums, Tiles>(product_, tiles_, block, row))
                          : run(WholeRowPanel<Sums, Tiles>(product_, tiles_, block, row));
  }

  template <bool two_row_panels, bool two_blocks>
  void run_blocks(int64_t row) {
    alignas(64) Sums sums[2];
    const KPanel& weights = *product_.weights[0];
    tiles_.template prepare<two_blocks>(0);
    for_segments(weights, product_.x, [&](const Segment& segment) {
      if (segment.begin % product_.k_panel == 0) begin<two_blocks>(sums, row);
      clear_sums<Unit, two_row_panels, two_blocks>(unit_);
      for (int64_t input = segment.begin; input < segment.end; input += inputs_)
        step<two_row_panels, two_blocks>(row, input);
      finish<two_row_panels, 0, 2>(*product_.weights[0], segment, row, sums[0]);
      if constexpr (two_blocks) finish<two_row_panels, 1, 3>(*product_.weights[1], segment, row, sums[1]);
      if (segment.end % product_.k_panel && segment.end < weights.inputs) return;
      for (int block = 0; block < 1 + two_blocks; ++block) end(sums[block], row, product_.out[block]);
    });
  }

  template <bool two_blocks>
  void begin(Sums* sums, int64_t row) const {
    std::memset(sums, 0, 2 * sizeof *sums);
    if (!product_.in_parts || product_.first) return;
    for (int block = 0; block < 1 + two_blocks; ++block) {
      std::memcpy(sums[block], product_.out[block] + row * kBlockNeurons, bytes_of_rows(row));
    }
  }

  void end(const Sums& sums, int64_t row, float* out) const {
    if (!product_.in_parts) return add_to(sums, row, out);
    std::memcpy(out + row * kBlockNeurons, sums, bytes_of_rows(row));
  }

  size_t bytes_of_rows(int64_t row) const {
    return static_cast<size_t>(rows_from(row) * kBlockNeurons) * sizeof(float);
  }
  int64_t rows_from(int64_t row) const {
    return least<int64_t>(product_.x.batch - row, limbs() ? kTileRows : 2 * kTileRows);
  }

  template <bool two_row_panels, bool two_blocks>
  [[gnu::always_inline]] void step(int64_t row, int64_t input) {
    const int64_t tile = input / kTileInputs, rest = input % kTileInputs, at = rest * kBlockNeurons;
    const int64_t row_panel = row / kTileRows * (limbs() ? 2 : 1);
    const int8_t* x = product_.x.limbs[0] + row_panel * product_.row_panel_stride + tile * kMaxTileBytes + rest;
    if (!rest) tiles_.template prepare<two_blocks>(tile + 1);
    add_tiles<Unit, two_row_panels, two_blocks>(unit_, x, x + product_.row_panel_stride, tiles_.at(0, tile) + at,
                                                two_blocks ? tiles_.at(1, tile) + at : nullptr);
  }

  template <bool two_row_panels, int first, int second>
  void finish(const KPanel& weights, const Segment& segment, int64_t row, Sums& sums) {
    alignas(64) int32_t high[kTileRows * kBlockNeurons], low[kTileRows * kBlockNeurons];
    unit_.template store<first>(high);
    if constexpr (two_row_panels) unit_.template store<second>(low);
    add_row_panel(weights, segment, row, high, limbs() ? low : nullptr, sums[0]);
    if (two_row_panels && !limbs()) add_row_panel(weights, segment, row + kTileRows, low, nullptr, sums[1]);
  }

  void add_row_panel(const KPanel& weights, const Segment& segment, int64_t row, const int32_t* high,
                     const int32_t* low, float* sums) {
    const int64_t rows = least<int64_t>(product_.x.batch - row, kTileRows);
    Unit::template add_segment_rows<Tiles::kFactor>(weights, product_.x, segment, row, rows, high, low, sums);
  }

  void add_to(const Sums& sums, int64_t row, float* out) const {
    const float* all = sums[0];
    for (int64_t i = 0; i < rows_from(row) * kBlockNeurons; ++i) out[row * kBlockNeurons + i] += all[i];
  }

  Unit& unit_;
  const IntegerProduct& product_;
  Tiles& tiles_;
  const int inputs_;
};

// For tiles decoded before.
template <class Unit, HasZeroPoints zero_points>
void multiply_predecoded(const IntegerProduct& product) {
  using Tiles = PredecodedTiles<zero_points>;
  Unit unit;
  Tiles tiles(product);
  using Multiplier = Int8Multiplier<Unit, Tiles>;
  Multiplier::begin(unit, product.x);
  Multiplier(unit, product, tiles).run();
  unit.end();
}

inline constexpr int64_t kLongSegment = 8 * kTileInputs;

// The rows of one row panel.
inline IntegerActivations row_panel_of(const IntegerActivations& x, int64_t row_panel, int64_t row_panel_stride) {
  const int64_t row = row_panel * kTileRows;
  IntegerActivations panel = x;
  panel.limbs[0] += row_panel * row_panel_stride;
  panel.sums += row * x.segment_stride;
  if (x.units) panel.units += row * x.segment_stride;
  if (x.unit_sums) panel.unit_sums += row * x.segment_stride;
  panel.batch = least<int64_t>(x.batch - row, kTileRows);
  return panel;
}

// Calls work(product, index) for two blocks at a time, which share loads of activations, and all row panels. With short
// segments, for one block and one row panel at a time: their accumulators take all vector registers.
template <class Work>
void for_products(const IntegerBlocks& all, const Work& work) {
  const int64_t row_panels = (all.x.batch + kTileRows - 1) / kTileRows, sums = kTileRows * kBlockNeurons;
  IntegerProduct product = {{}, {}, all.x, all.row_panel_stride, all.k_panel, {}};
  if (all.x.limb_count == 1 && all.x.segment < kLongSegment) {
    for (int64_t index = 0; index < all.count; ++index) {
      product.weights[0] = all.blocks + index;
      for (int64_t row_panel = 0; row_panel < row_panels; ++row_panel) {
        product.x = row_panel_of(all.x, row_panel, all.row_panel_stride);
        product.out[0] = all.out + (index * row_panels + row_panel) * sums;
        work(product, index);
      }
    }
    return;
  }
  for (int64_t index = 0; index < all.count; index += 2) {
    const bool two = index + 1 < all.count;
    product.weights[0] = all.blocks + index;
    product.weights[1] = two ? all.blocks + index + 1 : nullptr;
    product.out[0] = all.out + index * row_panels * sums;
    product.out[1] = two ? all.out + (index + 1) * row_panels * sums : nullptr;
    work(product, index);
  }
}

}  // namespace
}  // namespace tilepress
