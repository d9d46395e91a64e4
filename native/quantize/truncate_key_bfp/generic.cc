// Compiled for: portable avx2 avx512
#include "quantize/kv_units.h"

namespace tilepress {
namespace {

void truncate_key_bfp(const KvUnits& keys, int64_t channels, const KvToken& token) {
  const KvUnits mine = units_of_token(keys, channels, token.slot);
  const Cut to_bits(token.bits, token.nearest);
  const auto cut = [&](const Sixteen& values) {
    return Sixteen::of([&](int i) { return with_fewer_bits(values.parts[i], to_bits); });
  };
  for (int64_t group = 0; group < channels / kKvGroup; ++group) {
    const Lane before = Lane::get(mine.unit(group), token.slot % kKvLanes);
    Lane{cut(before.low), cut(before.high)}.set(mine.unit(group), token.slot % kKvLanes);
  }
}

TILEPRESS_KERNEL(truncate_key_bfp);

}  // namespace
}  // namespace tilepress
