// Compiled for: portable avx2 avx512
#include "quantize/kv_units.h"

namespace tilepress {
namespace {

// Sixteen channels of the open values.
struct OpenUnit {
  const KvOpenValues& open;
  const uint16_t* halves;
  Sixteen exponents;

  [[gnu::always_inline]] Sixteen integers(int64_t token) const {
    const Cut cut(token >= open.begin && token < open.end ? open.fewer : open.bits, open.nearest);
    const Sixteen own = Sixteen::halves(halves + token * open.stride);
    return Sixteen::of([&](int i) { return integers_of(own.parts[i], exponents.parts[i], cut); });
  }

  // All tokens again, two rows at a time, which share their bytes.
  [[gnu::always_inline]] void round(const KvUnits& unit) const {
    Sixteen signs = {};
    for (int64_t row = 0; row < 4; ++row) {
      Sixteen codes = {}, lows = {};
      const auto add = [&](int64_t token) {
        const Column column(token);
        const Sixteen values = integers(token);
        codes = Sixteen::of([&](int i) { return codes.parts[i] | (values.parts[i] >> 4 & 15) << column.shift; });
        lows = Sixteen::of([&](int i) { return lows.parts[i] | (values.parts[i] & 15) << column.shift; });
        signs = Sixteen::of([&](int i) { return signs.parts[i] | values.parts[i] >> 31 << column.sign; });
      };
      const auto add_row = [&](int64_t first) {
        for (int64_t token = first; token < least(first + 4, open.count); ++token) add(token);
      };
      add_row(4 * row);
      add_row(4 * row + 16);
      codes.store_words(unit.codes + 64 * row);
      if (unit.lows) lows.store_words(unit.lows + 64 * row);
    }
    signs.store_words(unit.codes + 256);
  }
};

// All tokens of a page at once.
void quantize_all(const KvUnits& values, int64_t channels, const KvOpenValues& open) {
  for (int64_t at = 0; at < kv_units(channels); ++at) {
    const KvUnits unit = values.unit(at);
    const uint16_t* halves = open.halves + at * kKvLanes;
    Sixteen shared = {};
    for (int64_t token = 0; token < open.count; ++token) {
      const Sixteen own = Sixteen::halves(halves + token * open.stride);
      shared = Sixteen::of([&](int i) { return max(shared.parts[i], fields_of(own.parts[i])); });
    }
    Exponents::set(shared, unit.exponents);
    OpenUnit{open, halves, shared}.round(unit);
  }
}

void quantize_value_bfp(const KvUnits& values, int64_t channels, const KvOpenValues& open) {
  if (open.all) return quantize_all(values, channels, open);
  const int64_t last = open.count - 1;
  for (int64_t at = 0; at < kv_units(channels); ++at) {
    const KvUnits unit = values.unit(at);
    const uint16_t* halves = open.halves + at * kKvLanes;
    const Sixteen before = Exponents::get(unit.exponents), mine = Sixteen::halves(halves + last * open.stride);
    const auto shared = [&](int i) { return max(before.parts[i], fields_of(mine.parts[i])); };
    const OpenUnit group = {open, halves, Sixteen::of(shared)};
    Uint32s rises = {};
#pragma GCC unroll 4
    for (int i = 0; i < kBlockVectors; ++i) rises |= before.parts[i] ^ group.exponents.parts[i];
    if (reduce_lanes(rises, bit_or<Uint32s>)[0]) {
      Exponents::set(group.exponents, unit.exponents);
      group.round(unit);
    } else {
      Column(last).set(unit, group.integers(last));
    }
  }
}

TILEPRESS_KERNEL(quantize_value_bfp);

}  // namespace
}  // namespace tilepress
