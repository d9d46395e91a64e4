#include "attention/bfp_lanes_scalar.h"

namespace tilepress {
namespace {

struct ScalarMix : ScalarLanes {
  template <int rows>
  static void mix(const ConstKvUnits& first, int64_t units, const KvWeights& p, float* out, int64_t stride) {
    for (int64_t at = 0; at < units; ++at, out += stride) {
      const ConstKvUnits unit = first.unit(at);
      int32_t sums[rows][kKvLanes] = {};
      dot<rows>(unit, p.values, kKvSegment, sums);
      for (int row = 0; row < rows; ++row) add(sums[row], unit, p.units[row * kKvSegmentPages], out + row * kKvLanes);
    }
  }
};

void mix_f32_u8_bfp(const ConstKvUnits& values, int64_t channels, const KvWeights& weights, float* out) {
  mix_page<ScalarMix>(values, channels, weights, out);
}

TILEPRESS_KERNEL(mix_f32_u8_bfp);

}  // namespace
}  // namespace tilepress
