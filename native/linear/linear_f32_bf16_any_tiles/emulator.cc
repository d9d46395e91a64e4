#include "linear/decode_bf16.h"
#include "linear/linear_f32_bf16_any_tiles/block_pair.h"
#include "matrix_unit/emulator/bf16.h"
#include "pack/unpack_scalar.h"

namespace tilepress {
namespace {

// Tiles decoded before, copied out one by one.
class PredecodedTiles {
 public:
  explicit PredecodedTiles(const uint16_t* tiles) : at_(tiles) {}
  void next(uint16_t* tile) {
    std::memcpy(tile, at_, kMaxTileBytes);
    at_ += kMaxTileBytes / 2;
  }

 private:
  const uint16_t* at_;
};

// `scratch`: non-zeros, then the tiles of both blocks.
bool linear_f32_bf16_any_tiles(const Bf16Blocks& all, int64_t* consumed, uint8_t* scratch) {
  Bf16Unit unit;
  begin_blocks(unit, all);
  for_pairs(all.count, all.in_pairs, [&](int64_t index, bool both) {
    uint8_t* memory = scratch + k_panel_scratch_bytes(all.blocks[index].tiles);
    uint16_t* tiles[2] = {};
    for (int block = 0; block < 1 + both; ++block) {
      const KPanel& k_panel = all.blocks[index + block];
      tiles[block] = reinterpret_cast<uint16_t*>(memory) + block * k_panel.tiles * kMaxTileBytes;
      consumed[index + block] = decode_any<Scalar>(k_panel, all.scaled, tiles[block], scratch);
      if (consumed[index + block] < 0) return true;
    }
    PredecodedTiles one(tiles[0]), two(tiles[1]);
    return PairMultiplier<Bf16Unit, PredecodedTiles>(unit, all, index, one, both ? &two : nullptr).run();
  });
  return true;
}

TILEPRESS_KERNEL(linear_f32_bf16_any_tiles);

}  // namespace
}  // namespace tilepress
