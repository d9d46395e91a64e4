// Compiled for: emulator amx
#include <cstring>

#include "matrix_unit/int8.h"

namespace tilepress {
namespace {

void epilogue_f32_i32(const SegmentDots& all) {
  constexpr int64_t kDots = kTileRows * kBlockNeurons;
  const KPanel& weights = *all.weights;
  const Segment segment = {0, 0, weights.inputs, weights.first / weights.format->group};
  const int32_t* dots = all.dots;
  float* out = all.out;
  for (int64_t row = 0; row < all.x.batch; row += kTileRows, dots += kDots, out += kDots) {
    alignas(64) float sums[kDots];
    const int64_t rows = least<int64_t>(all.x.batch - row, kTileRows);
    float* to = all.first ? out : sums;
    std::memset(to, 0, static_cast<size_t>(rows * kBlockNeurons) * sizeof(float));
    Int8Unit::add_segment_rows<1>(weights, all.x, segment, row, rows, dots, nullptr, to);
    for (int64_t i = 0; !all.first && i < rows * kBlockNeurons; ++i) out[i] += sums[i];
  }
}

TILEPRESS_KERNEL(epilogue_f32_i32);

}  // namespace
}  // namespace tilepress
