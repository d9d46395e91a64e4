// Layers with weights as float32.
#include "dispatch/float_loops.h"
#include "dispatch/layers.h"
#include "dispatch/registry.h"
#include "dispatch/tile_loops.h"

namespace tilepress {
namespace {

constexpr int64_t kF32KPanel = 128;  // inputs decoded at a time, of which two blocks and some rows fit the first cache

// Weights decoded to float32, as TileLoops takes them.
class F32Weights {
 public:
  explicit F32Weights(const F32Rows& x)
      : x_(x), decode_(choose<ops::decode_f32_any>()), multiply_(choose<ops::matmul_f32_f32_f32>()) {}

  static constexpr Blocking kMost = {256, 256, 8};
  int64_t rows() const { return x_.batch(); }
  int64_t k_panel() const { return kF32KPanel; }
  static int64_t sum_inputs() { return 0; }
  // Whole steps: of the last inputs, as many are decoded as lie together.
  int64_t tile_bytes(int64_t inputs) const {
    return (inputs + kKPanelStep - 1) / kKPanelStep * kKPanelStep * kBlockNeurons * int64_t{sizeof(float)};
  }

  int64_t decode(DecodedBlock& block, uint8_t* weights, uint8_t* scratch) const {
    block.tiles = weights;
    return decode_(block.k_panel, reinterpret_cast<float*>(weights), scratch);
  }

  void multiply(std::span<const DecodedBlock> blocks, const RowStrip& strip, bool first) const {
    for (size_t i = 0; first && i < blocks.size(); ++i) {
      float* sums = blocks[i].sums_of(strip.row);
      std::fill(sums, sums + strip.rows * kBlockNeurons, 0.0f);
    }
    for (size_t i = 0; i < blocks.size(); i += 2) {
      const DecodedBlock &one = blocks[i], *two = i + 1 < blocks.size() ? &blocks[i + 1] : nullptr;
      const auto weights = [](const DecodedBlock& block) { return reinterpret_cast<const float*>(block.tiles); };
      multiply_({{weights(one), two ? weights(*two) : nullptr},
                 one.k_panel.inputs,
                 x_.view(strip.row, strip.rows, one.k_panel.first),
                 {one.sums_of(strip.row), two ? two->sums_of(strip.row) : nullptr}});
    }
  }
  static void end_sum(const EndedSums&) {}

 private:
  const F32Rows& x_;
  KernelOf<ops::decode_f32_any> decode_;
  KernelOf<ops::matmul_f32_f32_f32> multiply_;
};

}  // namespace

namespace layers {

void linear_f32_f32_any(std::span<const LinearProblem> problems, const Activations& x, const FloatType&, int threads) {
  const PackedWeights& first = problems.front().weights;
  F32Rows rows(first.shape, x, 0);
  multiply_k_panels(choose<ops::linear_f32_f32_any>(), problems, rows, whole_groups(first, kFloatKPanel), threads);
}

void f32_rows(std::span<const LinearProblem> problems, const Activations& x, std::span<const int64_t> rows,
              int threads) {
  for (const int64_t row : rows) {
    std::vector<LinearProblem> of_row(problems.begin(), problems.end());
    for (auto& [weights, outputs] : of_row) outputs.y += row * outputs.row_bytes(weights.shape);
    linear_f32_f32_any(of_row, rows_of(x, problems.front().weights.shape.cols, row, 1), x.precision, threads);
  }
}

void matmul_f32_f32_f32(std::span<const LinearProblem> problems, const Activations& x, const FloatType&, int threads) {
  const PackedWeights& weights = problems.front().weights;
  F32Rows rows(weights.shape, x, kF32KPanel);
  prepare(rows, threads);
  F32Weights decoded(rows);
  const StoreFloats store(problems.front(), 1);
  TileLoops(weights, decoded, threads, store).run();
}

bool share_floats(std::span<const LinearProblem> problems, const FloatType&) {
  const PackedWeights& first = problems.front().weights;
  return std::ranges::all_of(problems, [&](const LinearProblem& problem) {
    const PackedWeights& weights = problem.weights;
    return weights.shape.cols == first.shape.cols && weights.shape.operand_bits == first.shape.operand_bits &&
           whole_groups(weights, kFloatKPanel) == whole_groups(first, kFloatKPanel);
  });
}

}  // namespace layers
}  // namespace tilepress
