// Compiled for: emulator amx
// Multiplying as fast as a matrix unit allows, for measuring what it allows.
#include "matrix_unit/int8.h"
#include "tilepress/elementwise.h"

namespace tilepress {
namespace {

int32_t multiply_tiles(int64_t rounds) {
  alignas(kVectorBytes) int8_t ones[kTileRows * kVectorBytes];
  alignas(kVectorBytes) int32_t sums[kTileRows * kBlockNeurons];
  for (int8_t& one : ones) one = 1;
  Int8Unit unit;
  unit.begin(kTileRows, kVectorBytes);
  unit.load<4>(ones);
  unit.load<5>(ones);
  unit.load<6>(ones);
  unit.load<7>(ones);
  clear_sums<Int8Unit, true, true>(unit);
  for (int64_t round = 0; round < rounds; ++round) {
    unit.add_product<0, 4, 6>();
    unit.add_product<1, 4, 7>();
    unit.add_product<2, 5, 6>();
    unit.add_product<3, 5, 7>();
  }
  unit.store<0>(sums);
  unit.end();
  return sums[0];
}

TILEPRESS_KERNEL(multiply_tiles);

}  // namespace
}  // namespace tilepress
