// Compiled for: portable avx2 avx512
#include "quantize/kv_units.h"

namespace tilepress {
namespace {

void quantize_key_bfp(const KvUnits& keys, int64_t channels, const KvToken& token, const uint16_t* key) {
  const KvUnits mine = units_of_token(keys, channels, token.slot);
  const int lane = token.slot % kKvLanes;
  const Cut cut(token.bits, token.nearest);
  for (int64_t group = 0; group < channels / kKvGroup; ++group, key += kKvGroup) {
    const KvUnits unit = mine.unit(group);
    const Sixteen low = Sixteen::halves(key), high = Sixteen::halves(key + kKvLanes);
    Uint32s largest = {};
#pragma GCC unroll 4
    for (int i = 0; i < kBlockVectors; ++i) {
      largest = max(largest, max(low.parts[i] & 0x7fff, high.parts[i] & 0x7fff));
    }
    const Uint32s exponents = fields_of(max_of_lanes(largest));
    const auto rounded = [&](const Sixteen& halves) {
      return Sixteen::of([&](int i) { return integers_of(halves.parts[i], exponents, cut); });
    };
    Exponents::set_one(lane, exponents[0], unit.exponents);
    Lane{rounded(low), rounded(high)}.set(unit, lane);
  }
}

TILEPRESS_KERNEL(quantize_key_bfp);

}  // namespace
}  // namespace tilepress
