#include "dispatch/kv_pruning.h"

#include "dispatch/checks.h"
#include "dispatch/parallel.h"
#include "tilepress/convert.h"

namespace tilepress {
namespace {

// Magnitudes below `magnitude` are dropped, and the first `equals` that have it.
struct Limit {
  int magnitude;
  int64_t equals;
};

// By two histograms: of the upper eight of fifteen bits, then of the lower seven.
Limit find_limit(const uint16_t* halves, int64_t count, int64_t drop) {
  int64_t upper[256] = {}, lower[128] = {};
  for (int64_t i = 0; i < count; ++i) ++upper[halves[i] >> 7 & 255];
  int high = 0, low = 0;
  while (drop >= upper[high]) drop -= upper[high++];
  for (int64_t i = 0; i < count; ++i) lower[halves[i] & 127] += (halves[i] >> 7 & 255) == high;
  while (drop >= lower[low]) drop -= lower[low++];
  return {high << 7 | low, drop};
}

}  // namespace

void drop_smallest(uint16_t* halves, int64_t count, int64_t drop) {
  if (!drop) return;
  Limit limit = find_limit(halves, count, drop);
  for (int64_t i = 0; i < count; ++i) {
    const int magnitude = halves[i] & 0x7fff;
    const bool is_limit = magnitude == limit.magnitude && limit.equals > 0;
    limit.equals -= is_limit;
    if (magnitude < limit.magnitude || is_limit) halves[i] = 0;
  }
}

std::vector<float> without_smallest(const KvSizes& sizes, const KvStep& step, int part, int threads) {
  const int64_t channels = sizes.channels, count = sizes.token_values(), drop = sizes.token_drop(part);
  const float* given = part ? step.values : step.keys;
  std::vector<float> pruned(size(sizes.batch * step.count * count));
  parallel_for(sizes.batch * step.count, threads, [&](int, int64_t item) {
    static thread_local std::vector<uint16_t> halves;
    halves.resize(size(count));
    const int64_t first = item / step.count * sizes.heads * step.count + item % step.count;
    const auto index = [&](int64_t i) { return (first + i / channels * step.count) * channels + i % channels; };
    for (int64_t i = 0; i < count; ++i) halves[size(i)] = float_to_fp16(given[index(i)]);
    drop_smallest(halves.data(), count, drop);
    for (int64_t i = 0; i < count; ++i) pruned[size(index(i))] = fp16_to_float(halves[size(i)]);
  });
  return pruned;
}

}  // namespace tilepress
