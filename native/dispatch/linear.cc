#include "dispatch/linear.h"

#include <numeric>
#include <stdexcept>
#include <string>

#include "dispatch/registry.h"
#include "dispatch/spans.h"
#include "dispatch/tile_loops.h"

namespace tilepress {
namespace {

// The nearest, overflowing to infinity and keeping NaN, as torch converts; float_to_fp16 saturates.
uint16_t to_fp16(float x) {
  constexpr float kOverflow = 65520.0f;  // the least magnitude that rounds to infinity
  const uint32_t sign = std::bit_cast<uint32_t>(x) >> 16 & 0x8000;
  const float magnitude = std::bit_cast<float>(std::bit_cast<uint32_t>(x) & 0x7fffffff);
  if (magnitude >= kOverflow) return static_cast<uint16_t>(sign | 0x7c00);
  return magnitude < kOverflow ? float_to_fp16(x) : 0x7e00;
}

void store_row(const Outputs& outputs, int64_t at, int count, const float* values) {
  auto* halves = reinterpret_cast<uint16_t*>(outputs.y) + at;
  if (outputs.type == Real::f32) {
    std::memcpy(outputs.y + at * 4, values, static_cast<size_t>(count) * 4);
  } else if (outputs.type == Real::bf16) {
    for (int i = 0; i < count; ++i) halves[i] = round_to_bf16(values[i]);
  } else {
    for (int i = 0; i < count; ++i) halves[i] = to_fp16(values[i]);
  }
}

[[noreturn]] void refuse_way(const std::string& activations, std::initializer_list<std::string_view> ways,
                             std::string_view way) {
  std::string known;
  for (std::string_view name : ways) known += (known.empty() ? "" : ", ") + std::string(name);
  throw std::invalid_argument(activations + " activations are multiplied by " + known + "; not " + std::string(way));
}

// Rows up to which multiplying weights as they are decoded is faster than decoding them to tiles: without a matrix unit
// more than with it.
constexpr int64_t kFewFloatRows = 1, kFewFloatRowsWithoutUnit = 4, kFewIntegerRows = 8;
// Of many rows, a short span of all of them stays in a core's second cache from block to block.
constexpr int64_t kFewF32Rows = 16, kShortF32Span = 256;
constexpr int64_t kMostPairRows = 2 * kTileRows, kMostTileRows = 1024, kShortSpan = 1024;
constexpr int64_t kFloatSpan = 4096;  // inputs; sums are not defined to the bit, so this only has to fit caches

// Inputs of a span of whole groups, at least `least` of them; a row's scale is no group.
int64_t whole_groups(const PackedWeights& weights, int64_t least) {
  const int64_t group = weights.shape.groups > 1 ? weights.format.group : 1, step = std::lcm(group, int64_t{kSpanStep});
  return (least + step - 1) / step * step;
}

// Adds the two parts of each row and stores them.
void store_parts(const MatrixShape& shape, const Outputs& outputs, int64_t block, int64_t row, int64_t batch, int parts,
                 float* totals) {
  for (int64_t i = 0; parts == 2 && i < batch / 2; ++i) {
    for (int neuron = 0; neuron < kBlockNeurons; ++neuron) {
      const float* pair = totals + 2 * i * kBlockNeurons + neuron;
      totals[i * kBlockNeurons + neuron] = pair[0] + pair[kBlockNeurons];
    }
  }
  store_block(shape, outputs, block, row / parts, batch / parts, totals, nullptr);
}

void linear_f32(const PackedWeights& weights, const Activations& x, const Outputs& outputs, int threads) {
  const auto kernel = choose(kLinearF32);
  const F32Rows rows(weights.shape, x, threads);
  const auto multiply = [&](const SpanWeights& span, int64_t row, int64_t batch, float* out, uint8_t* scratch) {
    return kernel(span, rows.view(row, batch, span.first), out, scratch);
  };
  const auto store = [&](int64_t block, int64_t row, int64_t batch, float* totals) {
    store_block(weights.shape, outputs, block, row, batch, totals, nullptr);
  };
  const int64_t span = x.batch > kFewF32Rows ? kShortF32Span : kFloatSpan;
  SpanLoops(weights, whole_groups(weights, span), x.batch, threads, multiply, store).run();
}

void linear_bf16(const PackedWeights& weights, const Activations& x, const Outputs& outputs, int threads) {
  const auto kernel = choose(kLinearBf16);
  const Bf16Rows rows(weights.shape, x, false, threads);
  const auto multiply = [&](const SpanWeights& span, int64_t row, int64_t batch, float* out, uint8_t* scratch) {
    return kernel(span, rows.view(row, batch, span.first), out, scratch);
  };
  const auto store = [&](int64_t block, int64_t row, int64_t batch, float* totals) {
    store_parts(weights.shape, outputs, block, row, batch, rows.parts(), totals);
  };
  SpanLoops(weights, whole_groups(weights, kFloatSpan), rows.batch(), threads, multiply, store).run();
}

// Groups' scales are multiplied into the tiles; a row's is applied to its sums.
class Bf16Tiles {
 public:
  Bf16Tiles(const PackedWeights& weights, const Bf16Rows& x, int64_t row, int64_t rows)
      : x_(x),
        row_(row),
        rows_(rows),
        span_(whole_groups(weights, rows <= 32 ? kShortSpan : 2048)),
        folded_(weights.shape.groups > 1 || scales_first(weights.format)),
        scaled_(!folded_ && weights.format.scale != ScaleType::none),
        decode_(choose(kDecodeBf16)),
        multiply_(choose(kMultiplyBf16)) {}

  int64_t rows() const { return rows_; }
  int64_t span() const { return span_; }
  int64_t tile_bytes(int64_t inputs) const {
    return (inputs + kSpanStep - 1) / kSpanStep * kSpanStep * 2 * kBlockNeurons;
  }

  // Dense bf16 lies in memory as its tiles do.
  int64_t decode(DecodedBlock& block, uint8_t* tiles, uint8_t* scratch) const {
    const Format& format = *block.span.format;
    for (int i = 0; scaled_ && i < kBlockNeurons; ++i) {
      block.scales[i] = load_scale(format.scale, block.span.scales, i);
    }
    const bool as_it_lies = format.rounding == Rounding::bf16 && !block.span.mask && !folded_;
    block.tiles = as_it_lies ? block.span.packed : tiles;
    return as_it_lies ? 0 : decode_(block.span, folded_, reinterpret_cast<uint16_t*>(tiles), scratch);
  }

  void multiply(const DecodedBlock& one, const DecodedBlock* two, int64_t row, int64_t rows) const {
    const auto tiles = [](const DecodedBlock& block) { return reinterpret_cast<const uint16_t*>(block.tiles); };
    const int64_t at = row * kBlockNeurons;
    multiply_({{tiles(one), two ? tiles(*two) : nullptr},
               {scaled_ ? one.scales : nullptr, two && scaled_ ? two->scales : nullptr},
               (one.span.inputs + tile_inputs(16) - 1) / tile_inputs(16),
               x_.lot(row_ + row, one.span.first),
               x_.lot_stride(),
               rows,
               {one.out + at, two ? two->out + at : nullptr}});
  }

 private:
  const Bf16Rows& x_;
  int64_t row_, rows_, span_;
  bool folded_, scaled_;
  DecodeBf16* decode_;
  MultiplyBf16* multiply_;
};

class Int8Tiles {
 public:
  Int8Tiles(const IntegerRows& x, const Cut& cut, int64_t row, int64_t rows)
      : x_(x),
        row_(row),
        rows_(rows),
        span_(cut.span),
        decode_(choose(kDecodeInt8)),
        multiply_(choose(kMultiplyInt8)) {}

  int64_t rows() const { return rows_; }
  int64_t span() const { return span_; }
  int64_t tile_bytes(int64_t inputs) const { return (inputs + kSpanStep - 1) / kSpanStep * kSpanStep * kBlockNeurons; }

  int64_t decode(DecodedBlock& block, uint8_t* tiles, uint8_t* scratch) const {
    block.tiles = tiles;
    return decode_(block.span, reinterpret_cast<int8_t*>(tiles), scratch);
  }

  void multiply(const DecodedBlock& one, const DecodedBlock* two, int64_t row, int64_t rows) const {
    const auto tiles = [](const DecodedBlock& block) { return reinterpret_cast<const int8_t*>(block.tiles); };
    const int64_t at = row * kBlockNeurons;
    multiply_({{&one.span, two ? &two->span : nullptr},
               {tiles(one), two ? tiles(*two) : nullptr},
               x_.view(row_ + row, rows, one.span.first),
               x_.lot_stride(),
               {one.out + at, two ? two->out + at : nullptr}});
  }

 private:
  const IntegerRows& x_;
  int64_t row_, rows_, span_;
  DecodeInt8* decode_;
  MultiplyInt8* multiply_;
};

void linear_bf16_tiles(const PackedWeights& weights, const Activations& x, const Outputs& outputs, int threads) {
  const Bf16Rows rows(weights.shape, x, true, threads);
  for (int64_t row = 0; row < rows.batch(); row += kMostTileRows) {
    Bf16Tiles tiles(weights, rows, row, std::min(kMostTileRows, rows.batch() - row));
    const auto store = [&](int64_t block, float* totals) {
      store_parts(weights.shape, outputs, block, row, tiles.rows(), rows.parts(), totals);
    };
    TileLoops(weights, tiles, threads, store).run();
  }
}

// Whether the matrix unit's own decoder takes the weights: not dense fields that must be unpacked first, nor zero
// points of many bits. (It may still refuse a table that has no zero.)
bool pairs_take(const PackedWeights& weights) {
  const int bits = weights.format.bits;
  return (weights.shape.sparse || bits == 4 || bits >= 8) && !(weights.format.zero_point && bits > 5);
}

// Two blocks at a time, decoded as they are multiplied with one or two lots. False, with nothing done, where the kernel
// does not take the weights.
class Bf16Pairs {
 public:
  Bf16Pairs(const PackedWeights& weights, const Bf16Rows& x, int64_t row, const Outputs& outputs)
      : weights_(weights),
        x_(x),
        row_(row),
        rows_(std::min<int64_t>(kMostPairRows, x.batch() - row)),
        outputs_(outputs),
        kernel_(choose(kLinearBf16Pair)),
        folded_(weights.shape.groups > 1 || scales_first(weights.format)) {}

  bool run(int threads) {
    std::vector<LinearScratch>& scratch = LinearScratch::of_workers(threads);
    parallel_for((weights_.shape.blocks() + 1) / 2, threads, [&](int worker, int64_t pair) {
      if (!refused_) run_pair(scratch[static_cast<size_t>(worker)], 2 * pair);
    });
    require_unchanged(changed_);
    return !refused_;
  }

 private:
  void run_pair(LinearScratch& mine, int64_t block) {
    const MatrixShape& shape = weights_.shape;
    const bool both = block + 1 < shape.blocks();
    const SpanWeights one = span_weights(weights_, block, 0, shape.cols, 0);
    const SpanWeights two = both ? span_weights(weights_, block + 1, 0, shape.cols, 0) : one;
    float* totals = mine.totals_for(2 * kMostPairRows * kBlockNeurons);
    float* other = both ? totals + kMostPairRows * kBlockNeurons : nullptr;
    float scales[2][kBlockNeurons];
    const bool scaled = !folded_ && weights_.format.scale != ScaleType::none;
    for (int i = 0; scaled && i < kBlockNeurons; ++i) {
      scales[0][i] = load_scale(weights_.format.scale, one.scales, i);
      scales[1][i] = load_scale(weights_.format.scale, two.scales, i);
    }
    const Bf16Product product = {{},
                                 {scaled ? scales[0] : nullptr, scaled ? scales[1] : nullptr},
                                 (shape.cols + tile_inputs(16) - 1) / tile_inputs(16),
                                 x_.lot(row_, 0),
                                 x_.lot_stride(),
                                 rows_,
                                 {totals, other}};
    int64_t taken[2] = {};
    uint8_t* scratch = mine.kernel_for(span_scratch_bytes(one.tiles) + 4 * one.tiles * kMaxTileBytes);
    if (!kernel_({{&one, both ? &two : nullptr}, folded_}, product, taken, scratch)) {
      refused_ = true;
      return;
    }
    for (int i = 0; i < 1 + both; ++i) {
      if (taken[i] < 0 || !fits(shape, weights_.streams, block + i, taken[i])) changed_ = true;
      store_parts(shape, outputs_, block + i, row_, rows_, x_.parts(), i ? other : totals);
    }
  }

  const PackedWeights& weights_;
  const Bf16Rows& x_;
  int64_t row_, rows_;
  const Outputs& outputs_;
  LinearBf16Pair* kernel_;
  bool folded_;
  std::atomic<bool> changed_{false}, refused_{false};
};

void linear_bf16_pairs(const PackedWeights& weights, const Activations& x, const Outputs& outputs, int threads) {
  const Bf16Rows rows(weights.shape, x, true, threads);
  for (int64_t row = 0; row < rows.batch(); row += kMostPairRows) {
    if (!Bf16Pairs(weights, rows, row, outputs).run(threads)) return linear_bf16_tiles(weights, x, outputs, threads);
  }
}

void linear_int8_tiles(const PackedWeights& weights, const Activations& x, const IntegerFormat& rounding,
                       const Cut& cut, const Outputs& outputs, int threads) {
  const IntegerRows rows(weights.shape, x, rounding, cut, true, threads);
  for (int64_t row = 0; row < x.batch; row += kMostTileRows) {
    Int8Tiles tiles(rows, cut, row, std::min(kMostTileRows, x.batch - row));
    const auto store = [&](int64_t block, float* totals) {
      store_block(weights.shape, outputs, block, row, tiles.rows(), totals, rows.scales(row));
    };
    TileLoops(weights, tiles, threads, store).run();
  }
}

// Two blocks at a time, decoded as they are multiplied with one or two lots.
void linear_int8_pairs(const PackedWeights& weights, const Activations& x, const IntegerFormat& rounding,
                       const Cut& cut, const Outputs& outputs, int threads) {
  const auto kernel = choose(kLinearInt8Pair);
  const IntegerRows rows(weights.shape, x, rounding, cut, true, threads);
  const MatrixShape& shape = weights.shape;
  const int64_t most = rounding.mantissa == 8 ? kTileRows : 2 * kTileRows;
  std::vector<LinearScratch>& scratch = LinearScratch::of_workers(threads);
  std::atomic<bool> changed{false};
  for (int64_t row = 0; row < x.batch; row += most) {
    const int64_t batch = std::min(most, x.batch - row);
    parallel_for((shape.blocks() + 1) / 2, threads, [&](int worker, int64_t pair) {
      LinearScratch& mine = scratch[static_cast<size_t>(worker)];
      float* totals = mine.totals_for(2 * most * kBlockNeurons);
      int64_t taken[2] = {};
      for (int64_t first = 0; first < shape.cols; first += cut.span) {
        SpanWeights spans[2];
        IntegerProduct product = {{}, {}, rows.view(row, batch, first), rows.lot_stride(), {}};
        for (int i = 0; i < 2 && 2 * pair + i < shape.blocks(); ++i) {
          spans[i] = span_weights(weights, 2 * pair + i, first, std::min(cut.span, shape.cols - first), taken[i]);
          product.weights[i] = &spans[i];
          product.out[i] = totals + i * most * kBlockNeurons;
        }
        int64_t took[2] = {};
        kernel(product, took, mine.kernel_for(3 * span_scratch_bytes(spans[0].tiles)));
        for (int i = 0; i < 2; ++i) {
          if (took[i] < 0) changed = true;
          taken[i] += std::max<int64_t>(took[i], 0);
        }
      }
      for (int i = 0; i < 2 && 2 * pair + i < shape.blocks(); ++i) {
        if (!fits(shape, weights.streams, 2 * pair + i, taken[i])) changed = true;
        store_block(shape, outputs, 2 * pair + i, row, batch, totals + i * most * kBlockNeurons, rows.scales(row));
      }
    });
  }
  require_unchanged(changed);
}

void linear_int8_spans(const PackedWeights& weights, const Activations& x, const IntegerFormat& rounding,
                       const Cut& cut, const Outputs& outputs, int threads) {
  const auto kernel = choose(kLinearInteger);
  const IntegerRows rows(weights.shape, x, rounding, cut, false, threads);
  const auto multiply = [&](const SpanWeights& span, int64_t row, int64_t batch, float* out, uint8_t* scratch) {
    return kernel(span, rows.view(row, batch, span.first), out, scratch);
  };
  const auto store = [&](int64_t block, int64_t row, int64_t batch, float* totals) {
    store_block(weights.shape, outputs, block, row, batch, totals, rows.scales(row));
  };
  SpanLoops(weights, cut.span, x.batch, threads, multiply, store).run();
}

}  // namespace

void store_block(const MatrixShape& shape, const Outputs& outputs, int64_t block, int64_t row, int64_t batch,
                 const float* totals, const float* scales) {
  const int64_t first = block * kBlockNeurons;
  float values[kBlockNeurons], bias[kBlockNeurons] = {};
  for (int i = 0; outputs.bias && i < rows_in(shape, block); ++i) bias[i] = outputs.bias[first + i];
  for (int64_t i = 0; i < batch; ++i, totals += kBlockNeurons) {
    const float scale = scales ? scales[i] : 1.0f;
    for (int neuron = 0; neuron < kBlockNeurons; ++neuron) {
      const float product = totals[neuron] * scale;
      values[neuron] = outputs.bias ? product + bias[neuron] : product;
    }
    store_row(outputs, (row + i) * shape.rows + first, rows_in(shape, block), values);
  }
}

std::string_view float_way(const PackedWeights& weights, int64_t batch, Real type) {
  if (!find(kLinearBf16.name)) return kLinearF32.name;
  const bool unit = find(kLinearBf16Pair.name)->isa != Isa::portable;
  const int64_t rows = batch * Bf16Rows::parts_of(type);
  if (rows <= (unit ? kFewFloatRows : kFewFloatRowsWithoutUnit)) return kLinearBf16.name;
  return unit && rows <= kMostPairRows && pairs_take(weights) ? kLinearBf16Pair.name : kMultiplyBf16.name;
}

void linear_float(const PackedWeights& weights, const Activations& x, std::string_view way, const Outputs& outputs,
                  int threads) {
  if (way == kLinearF32.name) return linear_f32(weights, x, outputs, threads);
  if (way == kLinearBf16.name) return linear_bf16(weights, x, outputs, threads);
  if (way == kLinearBf16Pair.name) return linear_bf16_pairs(weights, x, outputs, threads);
  if (way == kMultiplyBf16.name) return linear_bf16_tiles(weights, x, outputs, threads);
  refuse_way("float", {kLinearF32.name, kLinearBf16.name, kLinearBf16Pair.name, kMultiplyBf16.name}, way);
}

std::string_view integer_way(const PackedWeights& weights, int64_t batch, const IntegerFormat& rounding) {
  const Cut cut = cut_inputs(weights.shape, weights.format, rounding.group);
  const int64_t rows = batch * (rounding.mantissa == 8 ? 2 : 1);
  const bool unit = choose(kLinearInt8Pair.name).isa != Isa::portable;
  if (!unit || rows <= kFewIntegerRows || !tiles_take(cut.segment)) return kLinearInteger.name;
  return rows <= 2 * kTileRows ? kLinearInt8Pair.name : kMultiplyInt8.name;
}

void linear_integer(const PackedWeights& weights, const Activations& x, const IntegerFormat& rounding,
                    std::string_view way, const Outputs& outputs, int threads) {
  const Cut cut = cut_inputs(weights.shape, weights.format, rounding.group);
  if (way == kLinearInteger.name) return linear_int8_spans(weights, x, rounding, cut, outputs, threads);
  if (way != kLinearInt8Pair.name && way != kMultiplyInt8.name) {
    refuse_way("integer", {kLinearInteger.name, kLinearInt8Pair.name, kMultiplyInt8.name}, way);
  }
  if (!tiles_take(cut.segment)) {
    throw std::invalid_argument(std::string(way) + " wants groups of 32 inputs or a multiple of 64");
  }
  if (way == kLinearInt8Pair.name) return linear_int8_pairs(weights, x, rounding, cut, outputs, threads);
  linear_int8_tiles(weights, x, rounding, cut, outputs, threads);
}

}  // namespace tilepress
