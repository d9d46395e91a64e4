// The loops of a linear layer on a matrix unit: blocks are decoded to tiles once for all rows of activations.
#pragma once

#include <numeric>

#include "dispatch/registry.h"
#include "dispatch/spans.h"
#include "kernels/scales.h"

namespace tilepress {

// Rows of activations are whole tiles, unless there are fewer than one. store(block, totals) takes the [batch, 16] sums of
// one block.
template <class Store>
class TileLoops {
 public:
  TileLoops(const PackedWeights& weights, const FloatActivations<uint16_t>& x, int threads, const Store& store)
      : weights_(weights),
        x_(x),
        threads_(threads),
        store_(store),
        scratch_(LinearScratch::of_workers(threads)),
        decode_(choose(kDecodeBf16)),
        multiply_(choose(kMultiplyBf16)) {
    const MatrixShape& shape = weights.shape;
    const bool few = x.batch <= kFewRows;
    const int64_t group = shape.groups > 1 ? weights.format.group : 0, step = group ? std::lcm<int64_t>(group, 64) : 64;
    folded_ = scales_first(weights.format) || (group && (!few || group % kTileInputs));
    span_ = ((few ? kShortSpan : kLongSpan) + step - 1) / step * step;
    segment_ = group && !folded_ ? group / kTileInputs : span_ / kTileInputs;
    const int64_t share = shape.blocks() / threads / 2 * 2;
    together_ = few ? 2 : std::clamp<int64_t>(share, 2, kMostBlocks);
  }

  void run() {
    const int64_t blocks = weights_.shape.blocks();
    parallel_for((blocks + together_ - 1) / together_, threads_, [&](int worker, int64_t item) {
      run_blocks(scratch_[static_cast<size_t>(worker)], item * together_, std::min((item + 1) * together_, blocks));
    });
    require_unchanged(changed_);
  }

 private:
  // Up to kFewRows, memory is what binds: two blocks at a time, whose decoded tiles stay in the first cache, and scales
  // are applied to sums. Above, decoding is spread over so many rows that scales are put into the tiles.
  static constexpr int64_t kFewRows = 32, kShortSpan = 512, kLongSpan = 2048, kMostBlocks = 8, kRowsAtOnce = 64;
  static constexpr int64_t kTileInputs = tile_inputs(16);

  void run_blocks(LinearScratch& mine, int64_t begin, int64_t end) {
    const int64_t cols = weights_.shape.cols, count = x_.batch * kBlockNeurons, most_tiles = span_ / kTileInputs;
    float* totals = mine.totals_for((end - begin) * count);
    uint8_t* tiles = mine.tiles_for((end - begin) * most_tiles * kMaxTileBytes);
    const int64_t segments = (most_tiles + segment_ - 1) / segment_;
    float* scales = mine.scales_for((end - begin) * segments * kBlockNeurons);
    int64_t taken[kMostBlocks] = {};
    Product products[kMostBlocks];
    for (int64_t first = 0; first < cols; first += span_) {
      const int64_t inputs = std::min(span_, cols - first), used = (inputs + kTileInputs - 1) / kTileInputs;
      for (int64_t i = 0; i < end - begin; ++i) {
        const SpanWeights span = span_weights(weights_, begin + i, first, inputs, taken[i]);
        float* own = scales + i * segments * kBlockNeurons;
        products[i] = {decode(mine, span, taken[i], tiles + i * most_tiles * kMaxTileBytes), load_scales(span, own),
                       totals + i * count};
      }
      multiply(products, end - begin, first, used);
    }
    for (int64_t block = begin; block < end; ++block) {
      if (!fits(weights_.shape, weights_.streams, block, taken[block - begin])) changed_ = true;
      store_(block, totals + (block - begin) * count);
    }
  }

  struct Product {
    const void* tiles;
    const float* scales;
    float* out;
  };

  // Dense bf16 without scales to fold lies in memory as its tiles do.
  const void* decode(LinearScratch& mine, const SpanWeights& span, int64_t& taken, uint8_t* tiles) {
    if (span.format->rounding == Rounding::bf16 && !span.mask && !folded_) return span.packed;
    uint8_t* scratch = mine.kernel_for(span_scratch_bytes(span.tiles));
    const int64_t took = decode_(span, folded_, reinterpret_cast<uint16_t*>(tiles), scratch);
    if (took < 0) changed_ = true;
    taken += std::max<int64_t>(took, 0);
    return tiles;
  }

  // Scales of each segment of the span, null where they are in the tiles or there are none.
  const float* load_scales(const SpanWeights& span, float* to) const {
    const Format& format = *span.format;
    if (folded_ || format.scale == ScaleType::none) return nullptr;
    const int64_t inputs = segment_ * kTileInputs;
    for (int64_t at = 0, entry = 0; at < span.inputs; at += inputs) {
      const int64_t group = (span.first + at) / format.group * kBlockNeurons;
      for (int i = 0; i < kBlockNeurons; ++i) to[entry++] = load_scale(format.scale, span.scales, group + i);
    }
    return to;
  }

  void multiply(const Product* products, int64_t blocks, int64_t first, int64_t tiles) {
    for (int64_t row = 0; row < x_.batch; row += kRowsAtOnce) {
      const int64_t rows = std::min(kRowsAtOnce, x_.batch - row), at = row * kBlockNeurons;
      for (int64_t block = 0; block < blocks; block += 2) {
        const Product &one = products[block], none = {}, &two = block + 1 < blocks ? products[block + 1] : none;
        multiply_({{one.tiles, two.tiles},
                   tiles,
                   x_.x + row * x_.stride + first,
                   x_.stride,
                   rows,
                   segment_,
                   {one.scales, two.scales},
                   {one.out + at, two.out ? two.out + at : nullptr}});
      }
    }
  }

  PackedWeights weights_;
  FloatActivations<uint16_t> x_;
  int threads_;
  const Store& store_;
  std::vector<LinearScratch>& scratch_;
  DecodeBf16* decode_;
  MultiplyBf16* multiply_;
  bool folded_;
  int64_t span_, segment_, together_;
  std::atomic<bool> changed_{false};
};

}  // namespace tilepress
