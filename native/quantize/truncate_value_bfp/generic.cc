// Compiled for: portable avx2 avx512
#include "quantize/kv_units.h"

namespace tilepress {
namespace {

void truncate_value_bfp(const KvUnits& values, int64_t channels, const KvToken& token) {
  const Column column(token.slot);
  const Cut cut(token.bits, token.nearest);
  for (int64_t at = 0; at < kv_units(channels); ++at) {
    const Sixteen before = column.get(values.unit(at));
    column.set(values.unit(at), Sixteen::of([&](int i) { return with_fewer_bits(before.parts[i], cut); }));
  }
}

TILEPRESS_KERNEL(truncate_value_bfp);

}  // namespace
}  // namespace tilepress
