#include "dispatch/linear.h"

#include <atomic>
#include <stdexcept>
#include <vector>

#include "dispatch/parallel.h"
#include "dispatch/registry.h"

namespace tilepress {
namespace {

Format int8_rows(int64_t cols) {
  Format format = {};
  format.rounding = Rounding::integer;
  format.bits = 8;
  format.low = -128;
  format.high = format.max = 127;
  format.emax = 6;
  format.scale = ScaleType::fp32;
  format.group = cols;
  return format;
}

// Activations as int8, padded to whole tiles, with a scale a row and their sum over each group.
struct Int8Activations {
  Int8Activations(const MatrixShape& shape, const Format& weights, const Activations& x, int threads)
      : values(static_cast<size_t>(x.batch * shape.padded_cols())),
        scales(static_cast<size_t>(x.batch)),
        sums(static_cast<size_t>(x.batch * shape.groups)) {
    const auto quantize = choose(kQuantize);
    const Format format = int8_rows(shape.cols);
    std::atomic<bool> bad{false};
    parallel_for(x.batch, threads, [&](int, int64_t row) {
      std::vector<float> floats(static_cast<size_t>(shape.cols));
      load_row({x.data, x.type, nullptr}, row * shape.cols, shape.cols, floats.data());
      if (count_bad(floats.data(), shape.cols)) {
        bad = true;
        return;
      }
      int8_t* to = values.data() + row * shape.padded_cols();
      quantize(format, floats.data(), shape.cols, {scales.data() + row, nullptr, false}, to);
      int32_t* sum = sums.data() + row * shape.groups;
      for (int64_t at = 0; at < shape.cols; at += weights.group, ++sum) {
        for (int64_t i = at; i < std::min(at + weights.group, shape.cols); ++i) *sum += to[i];
      }
    });
    if (bad) throw std::invalid_argument("activations must be finite");
  }

  std::vector<int8_t> values;
  std::vector<float> scales;
  std::vector<int32_t> sums;
};

struct Scratch {
  std::vector<float> out;
  std::vector<int32_t> sums;
  std::vector<uint8_t> kernel;
};

}  // namespace

void linear_int8(const MatrixShape& shape, const Format& format, const Streams& streams, const Activations& x,
                 const float* bias, float* y, int threads) {
  const auto kernel = choose(kLinearInt8);
  const Int8Activations activations(shape, format, x, threads);
  const BlockShape tiles = shape.block();
  std::vector<Scratch> scratch(static_cast<size_t>(threads));
  std::atomic<bool> changed{false};
  parallel_for(shape.blocks(), threads, [&](int worker, int64_t block) {
    Scratch& mine = scratch[static_cast<size_t>(worker)];
    mine.out.resize(static_cast<size_t>(x.batch * kBlockNeurons));
    mine.sums.resize(mine.out.size());
    if (shape.sparse) mine.kernel.resize(static_cast<size_t>(unpack_scratch_bytes(tiles)));
    const int64_t kept = kept_in(shape, streams, block);
    if (!fits(shape, streams, block, kept)) {
      changed = true;
      return;
    }
    const GroupScales groups = scales_at(shape, streams, block, 0, true);
    const LinearBlock work = {&format,
                              shape.cols,
                              tiles.tiles,
                              shape.groups,
                              block_codes_at(shape, streams, block),
                              block_mask_at(shape, streams, block),
                              kept,
                              groups.scales,
                              groups.zeros,
                              activations.values.data(),
                              shape.padded_cols(),
                              x.batch,
                              activations.sums.data()};
    kernel(work, mine.out.data(), mine.sums.data(), mine.kernel.data());
    for (int64_t row = 0; row < x.batch; ++row) {
      const float scale = activations.scales[static_cast<size_t>(row)];
      for (int neuron = 0; neuron < rows_in(shape, block); ++neuron) {
        const int64_t column = block * kBlockNeurons + neuron;
        const float product = mine.out[static_cast<size_t>(row * kBlockNeurons + neuron)] * scale;
        y[row * shape.rows + column] = bias ? product + bias[column] : product;
      }
    }
  });
  require_unchanged(changed);
}

}  // namespace tilepress
