// Compiled for: portable avx2 avx512
#include "quantize/kv_units.h"

namespace tilepress {
namespace {

void truncate_value_bfp(const KvUnits& values, int64_t channels, const KvToken& token) {
  const Column column(token.slot);
  const uint32_t mask = mask_of(token.bits);
  for (int64_t at = 0; at < kv_units(channels); ++at) {
    const Sixteen before = column.get(values.unit(at));
    column.set(values.unit(at), Sixteen::of([&](int i) { return truncated(before.parts[i], mask); }));
  }
}

TILEPRESS_KERNEL(truncate_value_bfp);

}  // namespace
}  // namespace tilepress
