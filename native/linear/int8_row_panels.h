// Row panels of int8 activations times blocks of int8 operands over a K-panel, with the sums that int8_k_panel.h
// defines. Tiles has
//   reach<both>(tile): called for every tile, of both blocks or of one, in order, one or two before it is used, and for
//   some past the last;
//   at(block, tile): where a block's tile lies; kReady: whether all lie there from the first
//   kTimes: of what their weights are, operands are so many times as large; kMeetsZeroPoints: whether they do
// Unit is what tile_registers.h asks for, and brings
//   finish_rows<times>(weights, x, segment, row, rows, high, low or null, sums): int8_k_panel.h's `finish` for each row
//   Sums<times, units, zeros>, those of one row panel: add(weights, x, segment index, group, row, dots [rows, 16]), the
//   same for all rows of a row panel; add_to(out, rows)
#pragma once

#include "linear/int8_k_panel.h"
#include "matrix_unit/group_pipeline.h"
#include "matrix_unit/tile_registers.h"

namespace tilepress {
namespace {

// Tiles that were all decoded beforehand.
class ReadyTiles {
 public:
  static constexpr bool kReady = true;
  static constexpr int kTimes = 1;
  static constexpr MeetsZeroPoints kMeetsZeroPoints = MeetsZeroPoints::sometimes;

  explicit ReadyTiles(const IntegerProduct& product) : product_(product) {}
  template <bool both>
  void reach(int64_t) {}
  const int8_t* at(int block, int64_t tile) const { return product_.tiles[block] + tile * kMaxTileBytes; }

 private:
  const IntegerProduct& product_;
};

// One row panel and one block, as group_pipeline.h takes it.
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
        segments_(product.k_panel / product.x.segment),
        left_(segments_) {}

  [[gnu::always_inline]] void add(const int32_t* dots) {
    sums_.add(weights_, activations_, index_++, first_group_ + scale_.next(), row_, dots);
    --left_;
  }
  int64_t until_end() const { return left_; }  // of the K-panel, segments
  [[gnu::always_inline]] void end_k_panel() {
    sums_.add_to(out_, rows_);
    sums_ = Sums();
    left_ = segments_;
  }
  int64_t rows() const { return rows_; }
  const int8_t* x(int64_t tile) const { return x_ + tile * kMaxTileBytes; }
  static constexpr int64_t x_stride() { return kVectorBytes; }
  const int8_t* weights(int64_t tile) const { return tiles_.at(block_, tile); }
  [[gnu::always_inline]] void reach(int64_t tile) { tiles_.template reach<false>(tile); }

 private:
  const KPanel& weights_;
  int block_;
  const IntegerActivations& activations_;
  Tiles& tiles_;
  Sums sums_;
  ScaleOf scale_;
  int64_t first_group_;
  const int8_t* x_;
  float* out_;
  int64_t row_, rows_, segments_, left_, index_ = 0;
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
  // A K-panel may have any number of segments.
  [[gnu::always_inline]] void add(const int32_t* dots) {
    Int8RowPanel<Sums, Tiles>::add(dots);
    if (!this->until_end()) this->end_k_panel();
  }
  static int64_t until_break() { return kNoBreak; }
  static void take_break() {}

 private:
  WholeTiles steps_;
};

// Segments of half a tile: of weights, eight rows of 64 bytes; of activations, 32 bytes of each row. A K-panel has
// whole tiles, and so an even number of them.
template <class Sums, class Tiles>
class HalfRowPanel : public Int8RowPanel<Sums, Tiles> {
 public:
  HalfRowPanel(const IntegerProduct& product, Tiles& tiles, int block, int64_t row)
      : Int8RowPanel<Sums, Tiles>(product, tiles, block, row),
        groups_((product.weights[block]->inputs + kTileInputs / 2 - 1) / (kTileInputs / 2)) {
    this->reach(0);
  }

  int64_t groups() const { return groups_; }
  int64_t until_break() const { return this->until_end(); }
  [[gnu::always_inline]] void take_break() { this->end_k_panel(); }
  template <int tile, class Unit>
  [[gnu::always_inline]] void multiply(Unit& unit) {
    unit.template zero<tile>();
    unit.template load<4>(this->x(tile_) + tile * (kTileInputs / 2));
    unit.template load<6>(this->weights(tile_) + tile * (kMaxTileBytes / 2));
    unit.template add_product<tile, 4, 6>();
    if constexpr (tile == 0) {
      this->reach(tile_ + 1);
    } else {
      ++tile_;
    }
  }

 private:
  int64_t groups_, tile_ = 0;
};

// Two blocks go together, and two row panels, or the two limbs of one row panel, where there are so many: every tile
// loaded is used twice. Ready tiles of short segments, whose sums have to be scaled after each product, go one by one.
template <class Unit, class Tiles>
class Int8Multiplier {
 public:
  Int8Multiplier(Unit& unit, const IntegerProduct& product, Tiles& tiles)
      : unit_(unit), product_(product), tiles_(tiles), inputs_(inputs_of(product.x)) {}

  // To be called before the first of several products with the same activations.
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
  using Sums = float[2][kTileRows * kBlockNeurons];  // of a K-panel, for each row panel

  static int inputs_of(const IntegerActivations& x) {
    return x.segment == kTileInputs / 2 ? kTileInputs / 2 : kTileInputs;
  }
  bool limbs() const { return product_.x.limb_count == 2; }

  template <bool row_panels>
  void run_row_panels(int64_t row) {
    constexpr int64_t kShort = 2 * kTileInputs;
    const int blocks = product_.weights[1] ? 2 : 1;
    const bool one_by_one =
        Tiles::kReady ? !row_panels || (!limbs() && product_.x.segment < kShort) : !row_panels && blocks == 1;
    if (!one_by_one) return blocks == 2 ? run_blocks<row_panels, true>(row) : run_blocks<row_panels, false>(row);
    for (int row_panel = 0; row_panel < 1 + row_panels; ++row_panel) {
      for (int block = 0; block < blocks; ++block) run_one(block, row + row_panel * kTileRows);
    }
  }

  void run_one(int block, int64_t row) {
    const bool units = product_.x.units && !product_.x.one_unit;
    if constexpr (Tiles::kMeetsZeroPoints != MeetsZeroPoints::never) {
      if (Tiles::kMeetsZeroPoints == MeetsZeroPoints::always || product_.weights[block]->zeros) {
        return units ? run_one<true, true>(block, row) : run_one<false, true>(block, row);
      }
    }
    if constexpr (Tiles::kMeetsZeroPoints != MeetsZeroPoints::always) {
      units ? run_one<true, false>(block, row) : run_one<false, false>(block, row);
    }
  }

  template <bool units, bool zeros>
  void run_one(int block, int64_t row) {
    using Sums = typename Unit::template Sums<Tiles::kTimes, units, zeros>;
    const auto run = [&](auto row_panel) {
      multiply_row_panel(unit_, row_panel);
      row_panel.end_k_panel();
    };
    inputs_ < kTileInputs ? run(HalfRowPanel<Sums, Tiles>(product_, tiles_, block, row))
                          : run(WholeRowPanel<Sums, Tiles>(product_, tiles_, block, row));
  }

  template <bool row_panels, bool blocks>
  void run_blocks(int64_t row) {
    alignas(64) Sums sums[2];
    const KPanel& weights = *product_.weights[0];
    tiles_.template reach<blocks>(0);
    for_segments(weights, product_.x, [&](const Segment& segment) {
      if (segment.begin % product_.k_panel == 0) std::memset(sums, 0, sizeof sums);
      clear_sums<Unit, row_panels, blocks>(unit_);
      for (int64_t input = segment.begin; input < segment.end; input += inputs_) step<row_panels, blocks>(row, input);
      finish<row_panels, 0, 2>(*product_.weights[0], segment, row, sums[0]);
      if constexpr (blocks) finish<row_panels, 1, 3>(*product_.weights[1], segment, row, sums[1]);
      if (segment.end % product_.k_panel && segment.end < weights.inputs) return;
      for (int block = 0; block < 1 + blocks; ++block) add_to(sums[block], row, product_.out[block]);
    });
  }

  template <bool row_panels, bool blocks>
  [[gnu::always_inline]] void step(int64_t row, int64_t input) {
    const int64_t tile = input / kTileInputs, rest = input % kTileInputs, at = rest * kBlockNeurons;
    const int64_t row_panel = row / kTileRows * (limbs() ? 2 : 1);
    const int8_t* x = product_.x.limbs[0] + row_panel * product_.row_panel_stride + tile * kMaxTileBytes + rest;
    if (!rest) tiles_.template reach<blocks>(tile + 1);
    add_tiles<Unit, row_panels, blocks>(unit_, x, x + product_.row_panel_stride, tiles_.at(0, tile) + at,
                                        blocks ? tiles_.at(1, tile) + at : nullptr);
  }

  template <bool row_panels, int first, int second>
  void finish(const KPanel& weights, const Segment& segment, int64_t row, Sums& sums) {
    alignas(64) int32_t high[kTileRows * kBlockNeurons], low[kTileRows * kBlockNeurons];
    unit_.template store<first>(high);
    if constexpr (row_panels) unit_.template store<second>(low);
    finish_row_panel(weights, segment, row, high, limbs() ? low : nullptr, sums[0]);
    if (row_panels && !limbs()) finish_row_panel(weights, segment, row + kTileRows, low, nullptr, sums[1]);
  }

  void finish_row_panel(const KPanel& weights, const Segment& segment, int64_t row, const int32_t* high,
                        const int32_t* low, float* sums) {
    const int64_t rows = least<int64_t>(product_.x.batch - row, kTileRows);
    Unit::template finish_rows<Tiles::kTimes>(weights, product_.x, segment, row, rows, high, low, sums);
  }

  void add_to(const Sums& sums, int64_t row, float* out) const {
    const int64_t rows = least<int64_t>(product_.x.batch - row, limbs() ? kTileRows : 2 * kTileRows);
    const float* all = sums[0];
    for (int64_t i = 0; i < rows * kBlockNeurons; ++i) out[row * kBlockNeurons + i] += all[i];
  }

  Unit& unit_;
  const IntegerProduct& product_;
  Tiles& tiles_;
  const int inputs_;
};

// Tiles that were decoded beforehand.
template <class Unit>
void multiply_ready_tiles(const IntegerProduct& product) {
  Unit unit;
  ReadyTiles tiles(product);
  using Multiplier = Int8Multiplier<Unit, ReadyTiles>;
  Multiplier::begin(unit, product.x);
  Multiplier(unit, product, tiles).run();
  unit.end();
}

inline constexpr int64_t kLongSegment = 8 * kTileInputs;

// The rows of one row panel.
inline IntegerActivations row_panel_of(const IntegerActivations& x, int64_t row_panel, int64_t row_panel_stride) {
  const int64_t row = row_panel * kTileRows;
  IntegerActivations mine = x;
  mine.limbs[0] += row_panel * row_panel_stride;
  mine.sums += row * x.segment_stride;
  if (x.units) mine.units += row * x.segment_stride;
  if (x.unit_sums) mine.unit_sums += row * x.segment_stride;
  mine.batch = least<int64_t>(x.batch - row, kTileRows);
  return mine;
}

// Calls work(product, index) for two blocks at a time, which share tiles of activations, and all row panels. Or, where
// segments are short, so that a block's sums with one row panel take all vector registers, for each block and each row
// panel.
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
