// A matrix unit emulated in portable C++, so that tests of the code that drives one run on any machine.
#pragma once

#include "matrix_unit/tile_registers.h"
#include "tilepress/convert.h"

namespace tilepress {
namespace {

template <class Operand, class Sum>
struct EmulatedUnit {
  static constexpr int kPack = 4 / static_cast<int>(sizeof(Operand));  // consecutive operands of one neuron

  void begin(int rows, int row_bytes) { begin(rows, row_bytes, rows); }
  void begin(int rows, int row_bytes, int next_rows) {
    rows_ = rows;
    next_rows_ = next_rows;
    inputs_ = row_bytes / static_cast<int>(sizeof(Operand));
  }
  void end() {}

  template <int tile>
  void zero() {
    for (Sum& sum : sums_[tile]) sum = 0;
  }

  template <int tile>
  void load_sums(const void* from) {
    __builtin_memcpy(sums_[tile], from, static_cast<size_t>(rows_of(tile) * kVectorBytes));
  }

  // A weight tile has as many rows as an activation tile has inputs ÷ kPack.
  template <int tile>
  void load(const void* from, int64_t stride = kVectorBytes) {
    const int rows = tile < 6 ? rows_of(tile) : inputs_ / kPack;
    auto* to = reinterpret_cast<uint8_t*>(operands_[tile]);
    const size_t bytes = tile < 6 ? static_cast<size_t>(inputs_) * sizeof(Operand) : size_t{kVectorBytes};
    for (int row = 0; row < rows; ++row) {
      __builtin_memcpy(to + row * kVectorBytes, static_cast<const uint8_t*>(from) + row * stride, bytes);
    }
  }

  template <int sum, int x, int weights>
  void add_product() {
    constexpr int kRow = kVectorBytes / static_cast<int>(sizeof(Operand));
    for (int row = 0; row < rows_of(sum); ++row) {
      for (int input = 0; input < inputs_; ++input) {
        const Sum value = as_sum(operands_[x][row * kRow + input]);
        for (int neuron = 0; neuron < kBlockNeurons; ++neuron) {
          const Operand weight = operands_[weights][input / kPack * kRow + neuron * kPack + input % kPack];
          sums_[sum][row * kBlockNeurons + neuron] += value * as_sum(weight);
        }
      }
    }
  }

  template <int tile>
  void store(void* to) const {
    __builtin_memcpy(to, sums_[tile], static_cast<size_t>(rows_of(tile) * kVectorBytes));
  }

 private:
  int rows_of(int tile) const { return is_next_row_panel(tile) ? next_rows_ : rows_; }
  static float as_sum(uint16_t operand) { return bf16_to_float(operand); }
  static int32_t as_sum(int8_t operand) { return operand; }

  int rows_ = 0, next_rows_ = 0, inputs_ = 0;
  Sum sums_[4][kTileRows * kBlockNeurons];
  Operand operands_[8][kMaxTileBytes / sizeof(Operand)];
};

}  // namespace
}  // namespace tilepress
