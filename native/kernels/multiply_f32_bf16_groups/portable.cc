#include "kernels/multiply_f32_bf16_groups/plain_groups.h"

namespace tilepress {

void portable::multiply_bf16_groups(const GroupProduct& product, uint8_t* scratch) {
  ReadyTiles tiles(product.tiles);
  ReadyScales scales(group_scales(*product.weights, scratch));
  GroupMultiplier<Bf16Unit, PlainSums, ReadyTiles, ReadyScales>(product, tiles, scales).run();
}

}  // namespace tilepress
