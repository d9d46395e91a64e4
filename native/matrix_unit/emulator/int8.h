#pragma once

#include "linear/int8_k_panel.h"
#include "matrix_unit/emulator/registers.h"

namespace tilepress {
namespace {

struct Int8Unit : PlainUnit<int8_t, int32_t> {
  template <int times, bool, bool>
  class Sums {
   public:
    void add(const KPanel& weights, const IntegerActivations& x, int64_t index, int64_t group, int64_t row,
             const int32_t* dots) {
      const Segment segment = {index, 0, 0, group};
      const int64_t rows = least<int64_t>(x.batch - row, kTileRows);
      finish_rows<times>(weights, x, segment, row, rows, dots, nullptr, of_);
    }

    void add_to(float* out, int64_t rows) const {
      for (int64_t i = 0; i < rows * kBlockNeurons; ++i) out[i] += of_[i];
    }

   private:
    float of_[kTileRows * kBlockNeurons] = {};
  };

  template <int times>
  static void finish_rows(const KPanel& weights, const IntegerActivations& x, const Segment& segment, int64_t row,
                          int64_t rows, const int32_t* high, const int32_t* low, float* sums) {
    static_assert(times == 1);
    for (int64_t i = 0; i < rows; ++i) {
      const int64_t at = i * kBlockNeurons;
      int32_t dots[kBlockNeurons];
      for (int j = 0; j < kBlockNeurons; ++j) dots[j] = low ? (high[at + j] << kLimbBits) + low[at + j] : high[at + j];
      finish(weights, x, segment, row + i, dots, sums + at);
    }
  }
};

}  // namespace
}  // namespace tilepress
