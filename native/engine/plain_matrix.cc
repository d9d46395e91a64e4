#include "engine/plain_matrix.h"

#include <algorithm>

#include "dispatch/parallel.h"
#include "dispatch/registry.h"

namespace tilepress {
namespace {

// Inputs and rows multiplied at a time, such that what is read again stays in a cache.
constexpr int64_t kInputs = 128, kRows = 256;

}  // namespace

PlainMatrix::PlainMatrix(const float* weights, int64_t rows, int64_t cols)
    : rows_(rows), cols_(cols), weights_(size(blocks() * cols * kBlockNeurons)) {
  for (int64_t row = 0; row < rows; ++row) {
    float* to = weights_.data() + row / kBlockNeurons * cols * kBlockNeurons + row % kBlockNeurons;
    for (int64_t i = 0; i < cols; ++i) to[i * kBlockNeurons] = weights[row * cols + i];
  }
}

void PlainMatrix::multiply(const float* x, int64_t batch, const float* bias, float* y, int threads) const {
  multiply({0, rows_}, x, batch, bias, y, rows_, threads);
}

// A job is two blocks and some rows.
void PlainMatrix::multiply(const Neurons& given, const float* x, int64_t batch, const float* bias, float* y,
                           int64_t stride, int threads) const {
  const auto multiply = choose<ops::matmul_f32_f32_f32>();
  const auto store = choose<ops::epilogue_fp_f32>();
  const int64_t blocks = (given.count + kBlockNeurons - 1) / kBlockNeurons;
  const int64_t pairs = (blocks + 1) / 2, strips = (batch + kRows - 1) / kRows;
  parallel_for(pairs * strips, threads, [&](int, int64_t job) {
    alignas(kLinePair) float sums[2][kRows * kBlockNeurons];
    const int64_t first = job / strips * 2, row = job % strips * kRows, count = std::min(kRows, batch - row);
    const int64_t together = std::min<int64_t>(2, blocks - first);
    for (float* one : sums) std::fill(one, one + count * kBlockNeurons, 0.0f);
    for (int64_t at = 0; at < cols_; at += kInputs) {
      const auto weights = [&](int64_t i) {
        return i < together ? block(given.block() + first + i) + at * kBlockNeurons : nullptr;
      };
      multiply({{weights(0), weights(1)},
                std::min(kInputs, cols_ - at),
                {x + row * cols_ + at, cols_, count},
                {sums[0], together > 1 ? sums[1] : nullptr}});
    }
    const int64_t neuron = first * kBlockNeurons, neurons = std::min(together * kBlockNeurons, given.count - neuron);
    store({sums[0], kRows * kBlockNeurons, count, nullptr, bias ? bias + given.first + neuron : nullptr, neurons,
           FloatType::f32, reinterpret_cast<uint8_t*>(y + row * stride + neuron), stride * int64_t{sizeof(float)}});
  });
}

void PlainMatrix::gather(const int64_t* ids, int64_t count, float* to) const {
  for (int64_t i = 0; i < count; ++i, to += cols_) {
    const float* from = block(ids[i] / kBlockNeurons) + ids[i] % kBlockNeurons;
    for (int64_t j = 0; j < cols_; ++j) to[j] = from[j * kBlockNeurons];
  }
}

}  // namespace tilepress
