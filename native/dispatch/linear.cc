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

// Rows up to which multiplying weights as they are decoded is faster than decoding once and multiplying by tiles: of
// small codes, which cost most to decode, just one.
constexpr int64_t kFewFloatRows = 4, kFewRowsOfSmallCodes = 1, kFewIntegerRows = 8;
constexpr int64_t kMostTileRows = 1024, kShortSpan = 1024;
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
  SpanLoops(weights, whole_groups(weights, kFloatSpan), x.batch, threads, multiply, store).run();
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
  const int64_t few = weights.format.bits < 8 ? kFewRowsOfSmallCodes : kFewFloatRows;
  return batch * Bf16Rows::parts_of(type) <= few ? kLinearBf16.name : kMultiplyBf16.name;
}

void linear_float(const PackedWeights& weights, const Activations& x, std::string_view way, const Outputs& outputs,
                  int threads) {
  if (way == kLinearF32.name) return linear_f32(weights, x, outputs, threads);
  if (way == kLinearBf16.name) return linear_bf16(weights, x, outputs, threads);
  if (way == kMultiplyBf16.name) return linear_bf16_tiles(weights, x, outputs, threads);
  refuse_way("float", {kLinearF32.name, kLinearBf16.name, kMultiplyBf16.name}, way);
}

std::string_view integer_way(const PackedWeights& weights, int64_t batch, const IntegerFormat& rounding) {
  const Cut cut = cut_inputs(weights.shape, weights.format, rounding.group);
  const bool unit = choose(kMultiplyInt8.name).isa != Isa::portable;
  return unit && batch > kFewIntegerRows && tiles_take(cut.segment) ? kMultiplyInt8.name : kLinearInteger.name;
}

void linear_integer(const PackedWeights& weights, const Activations& x, const IntegerFormat& rounding,
                    std::string_view way, const Outputs& outputs, int threads) {
  const Cut cut = cut_inputs(weights.shape, weights.format, rounding.group);
  if (way == kLinearInteger.name) return linear_int8_spans(weights, x, rounding, cut, outputs, threads);
  if (way != kMultiplyInt8.name) refuse_way("integer", {kLinearInteger.name, kMultiplyInt8.name}, way);
  if (!tiles_take(cut.segment)) {
    throw std::invalid_argument(std::string(way) + " wants groups of 32 inputs or a multiple of 64");
  }
  linear_int8_tiles(weights, x, rounding, cut, outputs, threads);
}

}  // namespace tilepress
