// `multiply_groups`, sums of groups on a matrix unit: AMX where a file is compiled for it, elsewhere its emulator.
#pragma once

#if defined(__AMX_TILE__)
#include "matrix_unit/amx_groups.h"
#else
#include "matrix_unit/emulator/groups.h"
#endif

namespace tilepress {
namespace {

template <class Tiles, class Scales>
void multiply_groups(const GroupProduct& product, Tiles& tiles, Scales& scales) {
  GroupMultiplier<Bf16Unit, GroupSums, Tiles, Scales>(product, tiles, scales).run();
}

}  // namespace
}  // namespace tilepress
