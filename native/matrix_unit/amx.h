// AMX as a Unit of tile_registers.h. Inline assembly, since the compiler's intrinsics accept tile numbers only as
// literals, not as template arguments.
#pragma once

#include "matrix_unit/tile_registers.h"

namespace tilepress {
namespace {

struct AmxUnit {
  // Accumulators and activations have `rows` rows; activations have `row_bytes` per row, weights one row for each four
  // of those bytes.
  void begin(int rows, int row_bytes) { begin(rows, row_bytes, rows); }
  void begin(int rows, int row_bytes, int next_rows) {
    struct alignas(64) {
      uint8_t palette = 1, start_row = 0, reserved[14] = {};
      uint16_t row_bytes[16] = {};
      uint8_t rows[16] = {};
    } config;
    for (int tile = 0; tile < 8; ++tile) {
      const bool activations = tile == 4 || tile == 5;
      config.row_bytes[tile] = static_cast<uint16_t>(activations ? row_bytes : kVectorBytes);
      config.rows[tile] = static_cast<uint8_t>(tile >= 6 ? row_bytes / 4 : is_next_row_panel(tile) ? next_rows : rows);
    }
    __asm__ volatile("ldtilecfg %0" : : "m"(config));
  }
  void end() { __asm__ volatile("tilerelease"); }

  template <int tile>
  void zero() {
    __asm__ volatile("tilezero %%tmm%c0" : : "i"(tile));
  }

  template <int tile>
  void load(const void* from, int64_t stride = kStride) {
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(from), "r"(stride), "i"(tile) : "memory");
  }

  template <int tile>
  void load_sums(const void* from) {
    load<tile>(from);
  }

  template <int tile>
  void store(void* to) {
    __asm__ volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(to), "r"(kStride), "i"(tile) : "memory");
  }

 private:
  static constexpr int64_t kStride = kVectorBytes;
};

}  // namespace
}  // namespace tilepress
