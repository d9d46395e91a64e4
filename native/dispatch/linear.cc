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

constexpr int64_t kFewRows = 4;     // above, decoding once and multiplying by tiles is faster
constexpr int64_t kMostTileRows = 1024;
constexpr int64_t kFloatSpan = 4096;  // inputs; sums are not defined to the bit, so this only has to fit caches

// Spans of whole groups, so that none is cut.
int64_t float_span(const PackedWeights& weights) {
  const int64_t group = weights.shape.groups > 1 ? weights.format.group : 1, step = std::lcm(group, int64_t{kSpanStep});
  return (std::min(kFloatSpan, weights.shape.cols / 2 + 1) + step - 1) / step * step;
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
  SpanLoops(weights, float_span(weights), x.batch, threads, multiply, store).run();
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
  SpanLoops(weights, float_span(weights), rows.batch(), threads, multiply, store).run();
}

void linear_tiles(const PackedWeights& weights, const Activations& x, const Outputs& outputs, int threads) {
  const Bf16Rows rows(weights.shape, x, true, threads);
  for (int64_t row = 0; row < rows.batch(); row += kMostTileRows) {
    const int64_t batch = std::min(kMostTileRows, rows.batch() - row);
    const auto store = [&](int64_t block, float* totals) {
      const int64_t real = std::min(batch, x.batch * rows.parts() - row);
      store_parts(weights.shape, outputs, block, row, real, rows.parts(), totals);
    };
    TileLoops(weights, rows.view(row, batch, 0), threads, store).run();
  }
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

std::string_view float_way(int64_t batch, Real type) {
  if (!find(kLinearBf16.name)) return kLinearF32.name;
  return batch * Bf16Rows::parts_of(type) <= kFewRows ? kLinearBf16.name : kMultiplyBf16.name;
}

void linear_float(const PackedWeights& weights, const Activations& x, std::string_view way, const Outputs& outputs,
                  int threads) {
  if (way == kLinearF32.name) return linear_f32(weights, x, outputs, threads);
  if (way == kLinearBf16.name) return linear_bf16(weights, x, outputs, threads);
  if (way == kMultiplyBf16.name) return linear_tiles(weights, x, outputs, threads);
  throw std::invalid_argument("float activations are multiplied by " + std::string(kLinearF32.name) + ", " +
                              std::string(kLinearBf16.name) + " or " + std::string(kMultiplyBf16.name) + ", not " +
                              std::string(way));
}

void linear_integer(const PackedWeights& weights, const Activations& x, const IntegerFormat& rounding,
                    const Outputs& outputs, int threads) {
  const auto kernel = choose(kLinearInteger);
  const Cut cut = cut_inputs(weights.shape, weights.format, rounding.group);
  const IntegerRows rows(weights.shape, x, rounding, cut, threads);
  const auto multiply = [&](const SpanWeights& span, int64_t row, int64_t batch, float* out, uint8_t* scratch) {
    return kernel(span, rows.view(row, batch, span.first), out, scratch);
  };
  const auto store = [&](int64_t block, int64_t row, int64_t batch, float* totals) {
    store_block(weights.shape, outputs, block, row, batch, totals, rows.scales(row));
  };
  SpanLoops(weights, cut.span, x.batch, threads, multiply, store).run();
}

}  // namespace tilepress
