// int8 on the emulator: the Unit of int8_row_panels.h.
#pragma once

#include <algorithm>

#include "linear/int8_k_panel.h"
#include "matrix_unit/emulator/registers.h"

namespace tilepress {
namespace {

struct Int8Unit : EmulatedUnit<int8_t, int32_t> {
  template <int factor, bool, bool>
  class Sums {
   public:
    void add(const KPanel& weights, const IntegerActivations& x, int64_t index, int64_t group, int64_t row,
             const int32_t* dots) {
      const Segment segment = {index, 0, 0, group};
      const int64_t rows = least<int64_t>(x.batch - row, kTileRows);
      add_segment_rows<factor>(weights, x, segment, row, rows, dots, nullptr, sums_);
    }

    void add_to(float* out, int64_t rows) const {
      for (int64_t i = 0; i < rows * kBlockNeurons; ++i) out[i] += sums_[i];
    }

    void load(const float* from, int64_t rows) { std::copy_n(from, rows * kBlockNeurons, sums_); }
    void store(float* to, int64_t rows) const { std::copy_n(sums_, rows * kBlockNeurons, to); }

   private:
    float sums_[kTileRows * kBlockNeurons] = {};
  };

  template <int factor>
  static void add_segment_rows(const KPanel& weights, const IntegerActivations& x, const Segment& segment, int64_t row,
                               int64_t rows, const int32_t* high, const int32_t* low, float* sums) {
    static_assert(factor == 1);
    for (int64_t i = 0; i < rows; ++i) {
      const int64_t at = i * kBlockNeurons;
      int32_t dots[kBlockNeurons];
      for (int j = 0; j < kBlockNeurons; ++j) dots[j] = low ? (high[at + j] << kLimbBits) + low[at + j] : high[at + j];
      add_segment(weights, x, segment, row + i, dots, sums + at);
    }
  }
};

// Nothing: zero points are subtracted from integers.
struct SteppedCodes : Int8Unit {
  static bool accepts(const KPanel&, const IntegerActivations&) { return false; }
};

}  // namespace
}  // namespace tilepress
