#include "dispatch/kv_rotation.h"

#include <algorithm>
#include <cmath>

#include "dispatch/checks.h"
#include "dispatch/parallel.h"

namespace tilepress {
namespace {

constexpr int64_t kJobValues = 1 << 14;  // fewer take less time than waking a thread

// One step: each channel of a half with its own of the other. `kHalf` is 0 where only `half` knows it.
template <int64_t kHalf>
void add_and_subtract(float* values, int64_t block, int64_t half) {
  if (kHalf) half = kHalf;
  for (float* end = values + block; values < end; values += 2 * half) {
    for (int64_t i = 0; i < half; ++i) {
      const float first = values[i], second = values[i + half];
      values[i] = first + second;
      values[i + half] = first - second;
    }
  }
}

void rotate(float* values, int64_t block, float scale) {
  add_and_subtract<1>(values, block, 1);
  add_and_subtract<2>(values, block, 2);
  add_and_subtract<4>(values, block, 4);
  for (int64_t half = 8; half < block; half *= 2) add_and_subtract<0>(values, block, half);
  for (int64_t i = 0; i < block; ++i) values[i] *= scale;
}

}  // namespace

std::vector<float> rotated(const float* values, int64_t rows, int64_t channels, int threads) {
  const int64_t block = channels & -channels, blocks = rows * channels / block, per_job = kJobValues / block + 1;
  const auto scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(block)));
  std::vector<float> result(values, values + rows * channels);
  parallel_for((blocks + per_job - 1) / per_job, threads, [&](int, int64_t job) {
    const int64_t end = std::min(blocks, (job + 1) * per_job);
    for (int64_t i = job * per_job; i < end; ++i) rotate(result.data() + i * block, block, scale);
  });
  return result;
}

}  // namespace tilepress
