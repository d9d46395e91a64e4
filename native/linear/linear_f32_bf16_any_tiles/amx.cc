#include "linear/bf16_tiles_avx512.h"
#include "linear/linear_f32_bf16_any_tiles/block_pair.h"
#include "matrix_unit/amx_bf16.h"

namespace tilepress {
namespace {

// Block `index`, and the next if `two`; false, with nothing added, if a decoder's assumption did not hold.
template <class Decoder>
bool run_pair(Bf16Unit& unit, const Bf16Blocks& all, int64_t index, bool two, int64_t* consumed, uint8_t* scratch) {
  const KPanel &one = all.blocks[index], &other = all.blocks[index + (two ? 1 : 0)];
  Decoder first(one, scratch), second(other, scratch + k_panel_scratch_bytes(other.tiles));
  if (!PairMultiplier<Bf16Unit, Decoder>(unit, all, index, first, two ? &second : nullptr).run()) return false;
  consumed[index] = first.consumed();
  if (two) consumed[index + 1] = second.consumed();
  return true;
}

// Does not support dense codes of 1–3 and 5–7 bits, which must be unpacked before: decode_bf16_any does.
bool linear_f32_bf16_any_tiles(const Bf16Blocks& all, int64_t* consumed, uint8_t* scratch) {
  const KPanel& first = all.blocks[0];
  const int bits = first.format->bits;
  if (!first.mask && bits != 4 && bits < 8) return false;
  const bool speculative = all.scaled && SpeculativeNibbles::accepts(first);
  return with_tile_decoder(first, all.scaled, [&]<class Decoder>() {
    Bf16Unit unit;
    begin_blocks(unit, all);
    for_pairs(all.count, all.in_pairs, [&](int64_t index, bool two) {
      return (speculative && run_pair<SpeculativeNibbles>(unit, all, index, two, consumed, scratch)) ||
             run_pair<Decoder>(unit, all, index, two, consumed, scratch);
    });
    unit.end();
  });
}

TILEPRESS_KERNEL(linear_f32_bf16_any_tiles);

}  // namespace
}  // namespace tilepress
