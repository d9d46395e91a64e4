#include "kernels/multiply_f32_bf16_groups/amx_groups.h"

namespace tilepress {

void amx::multiply_bf16_groups(const GroupProduct& product, uint8_t* scratch) {
  ReadyTiles tiles(product.tiles);
  ReadyScales scales(group_scales(*product.weights, scratch));
  multiply_groups(product, tiles, scales);
}

}  // namespace tilepress
