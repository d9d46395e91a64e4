// Activations prepared for a kernel: converted, padded to whole tiles, divided in segments.
#pragma once

#include <array>
#include <atomic>
#include <mutex>
#include <vector>

#include "dispatch/matrix.h"
#include "dispatch/memory.h"

namespace tilepress {

// Memory for one call's activations, which the calling thread reuses in its next: touching new memory costs more than
// converting activations. More than kMaxReused is freed by the next call that needs less. One use per number and call;
// 2 and 3 are those of AlternatingRowPanels.
template <class T>
T* reused_memory(int number, int64_t count) {
  constexpr size_t kMaxReused = size_t{64} << 20;  // bytes
  static thread_local LineVector<T> memory[4];
  LineVector<T>& mine = memory[number];
  const size_t needed = static_cast<size_t>(count);
  if (mine.size() > needed && mine.size() * sizeof(T) > kMaxReused) LineVector<T>().swap(mine);
  if (mine.size() < needed) mine.resize(needed);
  return mine.data();
}

// Memory of row panels, each row of which one thread converts and all read. Writing to a cache line that all threads'
// caches share is slow. So there are two buffers, used in turn, and threads that are done early prefetch the next
// call's for writing.
template <class T>
class AlternatingRowPanels {
 public:
  T* take_turn(int64_t count) {
    constexpr int64_t kMost = int64_t{1} << 20;  // bytes
    bytes_ = count * int64_t{sizeof(T)};
    if (bytes_ > kMost) return reused_memory<T>(0, count);
    static thread_local bool second = false;
    second = !second;
    next_ = reused_memory<T>(second ? 2 : 3, count);
    return reused_memory<T>(second ? 3 : 2, count);
  }

  // A line of each tile: where every thread has a row to convert, that row's.
  void prefetch_next(int64_t worker) const {
    const auto* next = reinterpret_cast<const uint8_t*>(next_);
    for (int64_t at = worker % kTileRows * kVectorBytes; next && at < bytes_; at += kTileRows * kVectorBytes) {
      prefetch_for_write(next + at);
    }
  }

 private:
  const T* next_ = nullptr;
  int64_t bytes_ = 0;
};

// Activations [batch, cols], row after row.
struct Activations {
  const uint8_t* data;
  FloatType type;
  int64_t batch;
  FloatType precision = type;  // to which kernels of floats may round them: `type`, or bf16
};

// Some of the rows.
inline Activations rows_of(const Activations& x, int64_t cols, int64_t row, int64_t batch) {
  return {x.data + row * cols * bytes_of(x.type), x.type, batch, x.precision};
}

// How inputs are divided where integer weights meet integer activations: `segment` inputs share every scale; a new sum
// begins every `k_panel` inputs, so that K-panels can go to different threads. Both are part of the result's definition
// (kernels/reference.py).
struct KSplit {
  int64_t segment, k_panel;
};

// `group`: of the activations' block floating point, 0 for one scale per row.
KSplit split_inputs(const MatrixShape& shape, const Format& weights, int64_t group);

// How activations become integers: int8 with one scale per row (mantissa 0), or BFP(group, mantissa); `nearest` as in
// BfpInput.
struct IntegerFormat {
  int64_t group;
  int mantissa;
  bool nearest = false;
};

// Floats for integer weights, as int8 limbs. Three limbs, 18 bits: a group's dot product, 32 * 255 * 2^18, stays below
// 2^31. bf16 has eight bits, and so has its result: two limbs, 14 bits.
constexpr IntegerFormat float_limbs(FloatType type) { return {32, type == FloatType::bf16 ? 14 : 18, true}; }

// How activations lie: row after row, four rows of nine bits in five lines (kernels.h), or in row panels of tiles, of
// int8 or of bf16.
enum class Placing { rows, nine_bit_lines, int8_tiles, bf16_tiles };

// Rows that could not be converted, for they are not finite or too large.
class BadRows {
 public:
  void add(int64_t row) {
    const std::lock_guard lock(adding_);
    rows_.push_back(row);
    any_.store(true, std::memory_order_release);
  }
  bool any() const { return any_.load(std::memory_order_acquire); }
  const std::vector<int64_t>& rows() const { return rows_; }  // once all rows are ready

 private:
  std::mutex adding_;
  std::vector<int64_t> rows_;
  std::atomic<bool> any_{false};
};

// All kinds of activations below are converted by prepare(rows, threads) or by parallel_after: nothing else may be
// asked of them before but where they will lie.

// Activations as integers. A unit is what 1 stands for in a dot product with the weights' integers, times their `unit`;
// bf16 tiles hold weights' values, so that theirs is 1.
class IntegerRows {
 public:
  IntegerRows(const MatrixShape& shape, const Activations& x, const IntegerFormat& format, const KSplit& split,
              float unit, Placing placing);

  int64_t pending() const { return pending_; }
  void prepare(int64_t item);
  // False where the call will throw; `nearest` ones are multiplied all the same, but for `bad_rows`.
  bool good() const { return format_.nearest || !bad_rows_.any(); }
  const std::vector<int64_t>& bad_rows() const { return bad_rows_.rows(); }
  void prefetch_next(int64_t worker) const {
    words_ ? words_in_turn_.prefetch_next(worker) : values_in_turn_.prefetch_next(worker);
  }
  void finish();  // throws std::invalid_argument where one was not finite, unless they are `nearest`

  // Rows from `row` on, the first of a row panel if tiled, or of its five lines, and inputs from `first` on.
  IntegerActivations view(int64_t row, int64_t batch, int64_t first) const;
  TiledActivations tiled(int64_t row, int64_t rows, int64_t first) const;  // of bf16 tiles
  int64_t row_panel_stride() const { return panel_stride_ * kTileRows; }
  // Scales of whole rows from `row` on; null where there are none.
  const float* scales(int64_t row) const { return scales_ ? scales_ + row : nullptr; }

 private:
  void convert(int64_t row);
  // How many limbs a row has; 0 if it is not finite.
  int convert_int8(int64_t row);
  int convert_bfp(int64_t row);
  void set_starts(int64_t row);
  void set_unit_sums(int64_t row);
  void set_lines(int64_t set);
  int limb_count() const { return addends_ && !three_.load(std::memory_order_relaxed) ? 2 : limbs_; }
  const uint8_t* given(int64_t row) const;
  std::array<int8_t*, kMaxLimbs> places(int64_t row) const;
  uint16_t* words(int64_t row) const;
  int64_t piece_stride() const;
  void place_words(const int8_t* values, int64_t row);

  MatrixShape shape_;
  Activations given_;
  IntegerFormat format_;
  KSplit split_;
  float unit_;
  Placing placing_;
  int64_t pending_;
  BadRows bad_rows_;
  std::atomic<bool> three_{false};
  bool addends_;  // instead of limbs
  int limbs_, bits_;
  int64_t stride_, segments_, panel_stride_, limb_size_;
  AlternatingRowPanels<int8_t> values_in_turn_;
  AlternatingRowPanels<uint16_t> words_in_turn_;
  int8_t* values_ = nullptr;
  int8_t* lines_ = nullptr;    // what values are in five lines for four rows
  uint16_t* words_ = nullptr;  // of bf16 tiles
  int32_t* sums_;
  float *units_, *unit_sums_, *starts_, *scales_;  // null where there are none
};

// Activations as the floats of a kernel, rows padded with zeros to kKPanelStep inputs; where they are so already, the
// caller's own memory.
template <class Number>
class FloatRows {
 public:
  int64_t pending() const { return pending_; }
  static bool good() { return true; }
  static void prefetch_next(int64_t) {}
  void finish() { pending_ = 0; }

  FloatActivations<Number> view(int64_t row, int64_t batch, int64_t first) const {
    return {x_ + row * stride_ + first, stride_, batch};
  }
  int64_t batch() const { return batch_; }

 protected:
  FloatRows(const MatrixShape& shape, const Activations& x, int64_t batch)
      : shape_(shape), given_(x), stride_((shape.cols + kKPanelStep - 1) / kKPanelStep * kKPanelStep), batch_(batch) {}

  MatrixShape shape_;
  Activations given_;
  int64_t pending_ = 0;
  Number* own_ = nullptr;
  const Number* x_ = nullptr;
  int64_t stride_, batch_;
};

// `K-panel`: inputs, whole steps of them, of which those of all rows lie together, so that a cache holds them: rows of
// many inputs begin at the same places of it. Views are from the first of a K-panel on. Or 0, row after row.
class F32Rows : public FloatRows<float> {
 public:
  F32Rows(const MatrixShape& shape, const Activations& x, int64_t k_panel);
  void prepare(int64_t row);

  FloatActivations<float> view(int64_t row, int64_t batch, int64_t first) const {
    if (!k_panel_) return FloatRows::view(row, batch, first);
    return {x_ + first * batch_ + row * k_panel_, k_panel_, batch};
  }

 private:
  int64_t k_panel_;
};

// Rows of the precision bf16 are rounded to it. Others become two rows each, one after the other: the nearest bf16, and
// what that lacks. So sixteen bits of float32 count, and all of float16.
class Bf16Rows : public FloatRows<uint16_t> {
 public:
  // Row after row; in row panels of tiles (kernels.h); or that unless tiles can be loaded from rows as they were given.
  enum Layout { rows, row_panels, row_panels_or_given };
  Bf16Rows(const MatrixShape& shape, const Activations& x, Layout layout);
  void prepare(int64_t row);
  void prefetch_next(int64_t worker) const { in_turn_.prefetch_next(worker); }

  int parts() const { return parts_; }
  // In row panels, or as given: `row` is the first of a row panel, `first` the first input of a tile.
  TiledActivations tiled(int64_t row, int64_t rows, int64_t first) const;
  static int parts_of(FloatType precision) { return precision == FloatType::bf16 ? 1 : 2; }

 private:
  void place(int64_t row, const uint16_t* values, int64_t count);

  Layout layout_;
  int parts_;
  int64_t panel_stride_ = 0;
  AlternatingRowPanels<uint16_t> in_turn_;
};

// `exponent` and `unit` as HalfInput has them.
class HalfRows : public FloatRows<uint16_t> {
 public:
  HalfRows(const MatrixShape& shape, const Activations& x, int exponent, float unit);
  void prepare(int64_t row);
  const std::vector<int64_t>& bad_rows() const { return bad_rows_.rows(); }

  HalfActivations view(int64_t row, int64_t batch, int64_t first) const {
    return {x_ + row * stride_ + first, stride_, batch, units_ + row * groups() + first / kHalfGroup, groups()};
  }

 private:
  int64_t groups() const { return stride_ / kHalfGroup; }

  int exponent_;
  float unit_;
  float* units_;
  BadRows bad_rows_;
};

}  // namespace tilepress
