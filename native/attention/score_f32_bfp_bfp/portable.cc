#include "attention/bfp_lanes_scalar.h"

namespace tilepress {
namespace {

struct ScalarScore : ScalarLanes {
  template <int rows>
  static void score(const ConstKvUnits& first, int64_t groups, const KvQueries& queries, float scaling, float* scores) {
    for (int row = 0; row < rows; ++row) {
      for (int lane = 0; lane < kKvLanes; ++lane) scores[row * kKvSegment + lane] = 0;
    }
    for (int64_t group = 0; group < groups; ++group) {
      const ConstKvUnits unit = first.unit(group);
      const KvQueries q = queries_from(queries, group);
      int32_t sums[rows + 1][kKvLanes] = {};
      dot<rows + 1>(unit, q.bytes, kKvGroup, sums);
      for (int row = 0; row < rows; ++row) {
        for (int lane = 0; lane < kKvLanes; ++lane) sums[row][lane] += 3 * sums[row + 1][lane];
        add(sums[row], unit, q.units[row], scores + row * kKvSegment);
      }
    }
    for (int row = 0; row < rows; ++row) {
      for (int lane = 0; lane < kKvLanes; ++lane) scores[row * kKvSegment + lane] *= scaling;
    }
  }
};

void score_f32_bfp_bfp(const ConstKvUnits& keys, int64_t channels, const KvQueries& queries, float scaling,
                       float* scores) {
  score_page<ScalarScore>(keys, channels, queries, scaling, scores);
}

TILEPRESS_KERNEL(score_f32_bfp_bfp);

}  // namespace
}  // namespace tilepress
