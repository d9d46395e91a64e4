#include "dispatch/activations.h"

#include <atomic>
#include <bit>
#include <cstring>
#include <numeric>
#include <stdexcept>

#include "dispatch/nine_bits.h"
#include "dispatch/registry.h"

namespace tilepress {
namespace {

constexpr int64_t kIntegerKPanel = 2048;
constexpr int kMostAdded = 8;  // the mantissa whose values are faster as addends
// With more rows some group is likely to have both 255 and -255, which makes three addends of all rows.
constexpr int64_t kMostAddedRows = 8;

// Whether the kernel reads `starts` (tilepress/linear.h).
bool starts_serve() {
  const Isa isa = find<ops::linear_f32_i8_int>()->isa;
  return isa == Isa::neon_dotprod || isa == Isa::neon_i8mm;
}

size_t size(int64_t count) { return static_cast<size_t>(count); }

// A row, and zeros up to `padded` values.
template <class Number>
void place_row(const Number* values, int64_t count, int64_t padded, Number* to) {
  if (values != to) std::copy(values, values + count, to);
  std::fill(to + count, to + padded, Number{0});
}

// The same in pieces of `inputs` values, each into the row's place in its tile.
template <int inputs, class Number>
void place_in_row_panel(const Number* values, int64_t count, int64_t padded, int64_t row, Number* row_panel) {
  for (int64_t at = 0; at < padded; at += inputs) {
    Number* to = row_panel + at * kTileRows + row * inputs;
    if (at + inputs <= count) {
      std::memcpy(to, values + at, inputs * sizeof(Number));
      continue;
    }
    const int64_t here = std::clamp<int64_t>(count - at, 0, inputs);
    std::copy(values + at, values + at + here, to);
    std::fill(to + here, to + inputs, Number{0});
  }
}

// Rows of `stride` values each from the row panel on that begins with `row`.
TiledActivations in_row_panels(const uint16_t* x, int64_t stride, int64_t row, int64_t rows, int64_t first) {
  constexpr int64_t kInputs = tile_inputs(16);
  return {x + row * stride + first * kTileRows, kTileRows * stride, kTileRows * kInputs, kInputs, rows};
}

// A row as floats: the caller's own memory where it is that already. Good until the thread's next call.
const float* float_row(const MatrixShape& shape, const Activations& x, int64_t row) {
  if (x.type == FloatType::f32) return reinterpret_cast<const float*>(x.data) + row * shape.cols;
  static thread_local std::vector<float> floats;
  floats.resize(size(shape.cols));
  load_row({x.data, x.type, nullptr}, row * shape.cols, shape.cols, floats.data());
  return floats.data();
}

// Inputs from one row panel to the next. A K-panel of many row panels is read again and again: where these lie a large
// power of two apart they share few sets of a cache, so some tiles are left free between them.
int64_t row_panel_inputs(int64_t stride, int64_t batch, int64_t in_tile) {
  constexpr int64_t kAligned = 16, kFree = 5;  // tiles
  const bool alike = batch > 2 * kTileRows && stride / in_tile % kAligned == 0;
  return stride + (alike ? kFree * in_tile : 0);
}

}  // namespace

KSplit split_inputs(const MatrixShape& shape, const Format& weights, int64_t group) {
  const int64_t own = weights.group >= shape.cols       ? kIntegerKPanel
                      : weights.group <= kIntegerKPanel ? weights.group
                                                        : std::gcd(weights.group, kIntegerKPanel);
  const int64_t segment = group ? std::gcd(own, group) : own;
  const int64_t step = std::lcm(segment, int64_t{kKPanelStep});
  return {segment, (kIntegerKPanel + step - 1) / step * step};
}

IntegerRows::IntegerRows(const MatrixShape& shape, const Activations& x, const IntegerFormat& format,
                         const KSplit& split, float unit, Placing placing)
    : shape_(shape),
      given_(x),
      format_(format),
      split_(split),
      unit_(unit),
      placing_(placing),
      pending_(placing == Placing::nine_bit_lines ? (x.batch + kNineBitRows - 1) / kNineBitRows : x.batch),
      addends_(placing == Placing::rows && format.mantissa == kMostAdded && x.batch <= kMostAddedRows),
      limbs_(addends_ ? kMaxLimbs : limbs_of(format.mantissa)),
      bits_(format.mantissa ? 1 + format.mantissa : 8),
      stride_((shape.cols + kKPanelStep - 1) / kKPanelStep * kKPanelStep),
      segments_((shape.cols + split.segment - 1) / split.segment),
      panel_stride_(placing == Placing::int8_tiles   ? row_panel_inputs(stride_, x.batch, tile_inputs(8))
                    : placing == Placing::bf16_tiles ? row_panel_inputs(stride_, x.batch, tile_inputs(16))
                                                     : stride_),
      limb_size_(placing == Placing::int8_tiles || placing == Placing::bf16_tiles
                     ? (x.batch + kTileRows - 1) / kTileRows * kTileRows * panel_stride_
                     : x.batch * stride_),
      // Kernels that take several rows at once look at those that are missing from the last ones, too.
      sums_(reused_memory<int32_t>(0, (x.batch + kTileRows - 1) * segments_)),
      units_(format.mantissa || unit != 1 ? reused_memory<float>(0, 2 * (x.batch + kTileRows - 1) * segments_)
                                          : nullptr),
      unit_sums_(placing == Placing::int8_tiles && unit != 1 ? units_ + (x.batch + kTileRows - 1) * segments_
                                                             : nullptr),
      starts_(nullptr),
      scales_(format.mantissa ? nullptr : reused_memory<float>(1, x.batch)) {
  if (placing == Placing::bf16_tiles) {
    words_ = words_in_turn_.take_turn(limb_size_);
  } else if (placing == Placing::int8_tiles) {
    values_ = values_in_turn_.take_turn(limbs_ * limb_size_);
  } else if (placing != Placing::rows || !starts_serve()) {
    values_ = reused_memory<int8_t>(0, limbs_ * limb_size_);
  } else {
    // One after the other, so that they do not share cache sets while weights stream through.
    const int64_t starts = limbs_ * limb_size_, bytes = starts + 4 * x.batch * segments_ * int64_t{sizeof(float)};
    values_ = reused_memory<int8_t>(0, bytes);
    starts_ = reinterpret_cast<float*>(values_ + starts);
  }
  if (placing == Placing::nine_bit_lines) lines_ = reused_memory<int8_t>(1, pending_ * kNineBitLines * stride_);
}

// One row, or those of a set of five lines.
void IntegerRows::prepare(int64_t item) {
  if (placing_ != Placing::nine_bit_lines) return convert(item);
  const int64_t first = item * kNineBitRows, end = std::min(first + kNineBitRows, given_.batch);
  for (int64_t row = first; row < end; ++row) convert(row);
  set_lines(item);
}

void IntegerRows::convert(int64_t row) {
  const int limbs = format_.mantissa ? convert_bfp(row) : convert_int8(row);
  if (starts_) set_starts(row);
  if (unit_sums_) set_unit_sums(row);
  if (limbs == 0) bad_rows_.add(row);
  if (limbs == 3) three_ = true;
}

void IntegerRows::finish() {
  pending_ = 0;
  if (!good()) throw std::invalid_argument("activations must be finite");
}

// Four rows of limbs to five lines; rows that are missing are zeros.
void IntegerRows::set_lines(int64_t set) {
  const int64_t first = set * kNineBitRows, rows = std::min<int64_t>(kNineBitRows, given_.batch - first);
  int32_t values[kNineBitRows * kNineBitPiece] = {};
  int8_t lines[kNineBitLines * kNineBitPiece];
  for (int64_t at = 0; at < stride_; at += kNineBitPiece) {
    for (int64_t row = 0; row < rows; ++row) {
      const int8_t *high = values_ + (first + row) * stride_ + at, *low = high + limb_size_;
      for (int i = 0; i < kNineBitPiece; ++i) values[row * kNineBitPiece + i] = high[i] * (1 << kLimbBits) + low[i];
    }
    to_lines<kNineBitRows>(values, lines);
    for (int64_t line = 0; line < kNineBitLines; ++line) {
      std::copy_n(lines + line * kNineBitPiece, kNineBitPiece, lines_ + (set * kNineBitLines + line) * stride_ + at);
    }
  }
}

void IntegerRows::set_starts(int64_t row) {
  for (int64_t at = row * segments_; at < (row + 1) * segments_; ++at) {
    std::fill_n(starts_ + 4 * at, 4, kSumStart * (units_ ? units_[at] : 1.0f));
  }
}

void IntegerRows::set_unit_sums(int64_t row) {
  for (int64_t at = row * segments_; at < (row + 1) * segments_; ++at) {
    unit_sums_[at] = static_cast<float>(sums_[at]) * units_[at];
  }
}

const uint8_t* IntegerRows::given(int64_t row) const { return given_.data + row * shape_.cols * bytes_of(given_.type); }

// Where a row's first values go, each limb of it; in row panels of tiles, their pieces lie a tile apart.
std::array<int8_t*, kMaxLimbs> IntegerRows::places(int64_t row) const {
  const bool tiled = placing_ == Placing::int8_tiles;
  int8_t* first =
      values_ + (tiled ? row / kTileRows * limbs_ * row_panel_stride() + row % kTileRows * kPiece : row * stride_);
  std::array<int8_t*, kMaxLimbs> limbs = {};
  for (int i = 0; i < limbs_; ++i) limbs[size(i)] = first + i * (tiled ? row_panel_stride() : limb_size_);
  return limbs;
}

int64_t IntegerRows::piece_stride() const {
  return placing_ == Placing::bf16_tiles   ? kTileRows * kWordPiece
         : placing_ == Placing::int8_tiles ? kTileRows * kPiece
                                           : kPiece;
}

uint16_t* IntegerRows::words(int64_t row) const {
  return words_ + row / kTileRows * row_panel_stride() + row % kTileRows * kWordPiece;
}

int IntegerRows::convert_int8(int64_t row) {
  static thread_local std::vector<int8_t> before_words;
  const bool as_words = placing_ == Placing::bf16_tiles;
  if (as_words) before_words.resize(size(stride_));
  const Int8Input in = {given(row), given_.type, shape_.cols, split_.segment};
  int8_t* to = as_words ? before_words.data() : places(row)[0];
  const Int8Output out = {to, stride_, as_words ? kPiece : piece_stride(), sums_ + row * segments_, scales_ + row};
  if (!choose<ops::quantize_i8_fp>()(in, out)) return 0;
  if (as_words) place_words(to, row);
  if (units_) std::fill_n(units_ + row * segments_, segments_, unit_);
  return 1;
}

// Integers as bf16, in the order of its tiles.
void IntegerRows::place_words(const int8_t* values, int64_t row) {
  uint16_t* to = words(row);
  for (int64_t at = 0; at < stride_; ++at) {
    const uint32_t bits = std::bit_cast<uint32_t>(static_cast<float>(values[at]));
    to[at / kWordPiece * piece_stride() + at % kWordPiece] = static_cast<uint16_t>(bits >> 16);
  }
}

int IntegerRows::convert_bfp(int64_t row) {
  const bool as_words = placing_ == Placing::bf16_tiles;
  const BfpInput in = {given(row),       given_.type, shape_.cols,     format_.group, split_.segment,
                       format_.mantissa, addends_,    format_.nearest, unit_};
  const std::array<int8_t*, kMaxLimbs> limbs = as_words ? std::array<int8_t*, kMaxLimbs>{} : places(row);
  return choose<ops::quantize_bfp_fp>()(in, {{limbs[0], limbs[1], limbs[2]},
                                             as_words ? words(row) : nullptr,
                                             stride_,
                                             piece_stride(),
                                             sums_ + row * segments_,
                                             units_ + row * segments_});
}

IntegerActivations IntegerRows::view(int64_t row, int64_t batch, int64_t first) const {
  const int64_t segment = row * segments_ + first / split_.segment;
  const float* units = units_ ? units_ + segment : nullptr;
  if (lines_) {
    const int8_t* from = lines_ + row / kNineBitRows * kNineBitLines * stride_ + first;
    return {{from}, 1, 0, true, bits_, stride_, batch, split_.segment, sums_ + segment, units, nullptr, segments_};
  }
  const bool tiled = placing_ == Placing::int8_tiles;
  const int8_t* from =
      values_ + (tiled ? row / kTileRows * limbs_ * row_panel_stride() + first * kTileRows : row * stride_ + first);
  const int64_t next = tiled ? row_panel_stride() : limb_size_;
  const int8_t* limbs[kMaxLimbs] = {};
  for (int limb = 0; limb < limb_count(); ++limb) limbs[limb] = from + limb * next;
  return {{limbs[0], limbs[1], limbs[2]},
          limb_count(),
          addends_ ? 0 : kLimbBits,
          false,
          bits_,
          stride_,
          batch,
          split_.segment,
          sums_ + segment,
          units,
          starts_ ? starts_ + 4 * segment : nullptr,
          segments_,
          !format_.mantissa,
          unit_sums_ ? unit_sums_ + segment : nullptr};
}

TiledActivations IntegerRows::tiled(int64_t row, int64_t rows, int64_t first) const {
  return in_row_panels(words_, panel_stride_, row, rows, first);
}

F32Rows::F32Rows(const MatrixShape& shape, const Activations& x, int64_t k_panel)
    : FloatRows(shape, x, x.batch), k_panel_(k_panel) {
  x_ = reinterpret_cast<const float*>(x.data);
  if (x.type == FloatType::f32 && stride_ == shape.cols && !k_panel) return;
  pending_ = x.batch;
  const int64_t step = k_panel ? k_panel : stride_;
  x_ = own_ = reused_memory<float>(0, x.batch * ((shape.cols + step - 1) / step * step));
}

void F32Rows::prepare(int64_t row) {
  const int64_t step = k_panel_ ? k_panel_ : stride_;
  for (int64_t at = 0; at < shape_.cols; at += step) {
    const int64_t count = std::min(step, shape_.cols - at);
    float* to = own_ + at * batch_ + row * step;
    load_row({given_.data, given_.type, nullptr}, row * shape_.cols + at, count, to);
    std::fill(to + count, to + step, 0.0f);
  }
}

Bf16Rows::Bf16Rows(const MatrixShape& shape, const Activations& x, Layout layout)
    : FloatRows(shape, x, x.batch * parts_of(x.precision)), layout_(layout), parts_(parts_of(x.precision)) {
  x_ = reinterpret_cast<const uint16_t*>(x.data);
  if (layout != row_panels && x.type == FloatType::bf16 && stride_ == shape.cols) return;
  pending_ = x.batch;
  panel_stride_ = layout == rows ? stride_ : row_panel_inputs(stride_, batch_, tile_inputs(16));
  const int64_t count = (batch_ + kTileRows - 1) / kTileRows * kTileRows * panel_stride_;
  x_ = own_ = layout == rows ? reused_memory<uint16_t>(0, count) : in_turn_.take_turn(count);
}

void Bf16Rows::prepare(int64_t row) {
  const int64_t count = shape_.cols;
  if (given_.type == FloatType::bf16)
    return place(row, reinterpret_cast<const uint16_t*>(given_.data) + row * count, count);
  static thread_local std::vector<uint16_t> high, low;
  high.resize(size(count));
  low.resize(size(count));
  const float* floats = float_row(shape_, given_, row);
  for (size_t i = 0; i < high.size(); ++i) high[i] = round_to_bf16(floats[i]);
  if (parts_ == 1) return place(row, high.data(), count);
  for (size_t i = 0; i < high.size(); ++i) {
    const float left = floats[i] - bf16_to_float(high[i]);
    low[i] = is_finite(left) ? round_to_bf16(left) : uint16_t{0};
  }
  place(2 * row, high.data(), count);
  place(2 * row + 1, low.data(), count);
}

void Bf16Rows::place(int64_t row, const uint16_t* values, int64_t count) {
  if (layout_ == rows) return place_row(values, count, stride_, own_ + row * stride_);
  place_in_row_panel<tile_inputs(16)>(values, count, stride_, row % kTileRows,
                                      own_ + row / kTileRows * kTileRows * panel_stride_);
}

TiledActivations Bf16Rows::tiled(int64_t row, int64_t rows, int64_t first) const {
  if (own_) return in_row_panels(own_, panel_stride_, row, rows, first);
  return {x_ + row * stride_ + first, kTileRows * stride_, tile_inputs(16), stride_, rows};
}

HalfRows::HalfRows(const MatrixShape& shape, const Activations& x, int exponent, float unit)
    : FloatRows(shape, x, x.batch),
      exponent_(exponent),
      unit_(unit),
      units_(reused_memory<float>(0, batch_ * groups())) {
  pending_ = x.batch;
  x_ = own_ = reused_memory<uint16_t>(0, batch_ * stride_);
}

void HalfRows::prepare(int64_t row) {
  const uint8_t* given = given_.data + row * shape_.cols * bytes_of(given_.type);
  const HalfInput in = {given, given_.type, shape_.cols, exponent_, unit_};
  if (!choose<ops::quantize_f16_fp>()(in, {own_ + row * stride_, stride_, units_ + row * groups()})) bad_rows_.add(row);
}

}  // namespace tilepress
