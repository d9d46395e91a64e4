// Python's door to formats and packed matrices.
#include "dispatch/matrix.h"

#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "bindings/arguments.h"
#include "bindings/doors.h"
#include "bindings/tensors.h"
#include "dispatch/linear.h"
#include "dispatch/parallel.h"

namespace tilepress {
namespace {

// A Format with the tables it points to. All matrices of a format share one, so that it stays in caches between layers.
struct OwnedFormat {
  OwnedFormat() = default;
  OwnedFormat(const OwnedFormat&) = delete;

  Format format{};
  std::vector<float> thresholds;
  std::vector<uint8_t> codes;
  std::vector<float> values;
  std::vector<uint16_t> bf16s;
  std::vector<int8_t> integers;
  std::vector<uint16_t> halves;
};

void set_tables(OwnedFormat& owned, ConstFloats thresholds, ConstBytes codes, ConstFloats values) {
  require(thresholds.size() < 256, "at most 255 thresholds");
  int steps = 0;
  while ((size_t{1} << steps) < thresholds.size() + 1) ++steps;
  owned.thresholds.assign(thresholds.data(), thresholds.data() + thresholds.size());
  owned.thresholds.resize((size_t{1} << steps) - 1, std::numeric_limits<float>::infinity());
  owned.codes.assign(codes.data(), codes.data() + codes.size());
  require(owned.codes.size() == thresholds.size() + 1 || owned.codes.empty(), "one code more than thresholds");
  owned.codes.resize(size_t{1} << steps, owned.codes.empty() ? uint8_t{0} : owned.codes.back());
  owned.values.assign(values.data(), values.data() + values.size());
  owned.values.resize(256, 0.0f);  // so that no byte can point past the end
  for (float value : owned.values) owned.bf16s.push_back(round_to_bf16(value));
  owned.format.search_steps = steps;
  owned.format.in_bf16 =
      std::ranges::all_of(owned.values, [](float value) { return std::bit_cast<uint32_t>(value) % (1 << 16) == 0; });
}

// The values of 4-bit codes as integers of the largest unit that makes them so, where they are such, and of eight bits.
void set_integers(OwnedFormat& owned) {
  const std::span<const float> values(owned.values.data(), 16);
  for (float unit = 1; unit >= 0x1p-7f; unit /= 2) {
    const auto is_small_integer = [&](float value) {
      const float units = value / unit;
      return std::abs(units) < 128 && units == std::trunc(units);
    };
    if (!std::ranges::all_of(values, is_small_integer)) continue;
    for (float value : values) owned.integers.push_back(static_cast<int8_t>(value / unit));
    owned.format.unit = unit;
    return;
  }
}

// The values of at most 64 codes as fp16, the largest being 1 or more and less than 2, where none is so much smaller
// that it would lose bits, and one that is sparse has a zero.
void set_halves(OwnedFormat& owned) {
  const std::span<const float> values(owned.values.data(), 64);
  float most = 0, least = std::numeric_limits<float>::infinity();
  for (float value : values) {
    if (!is_finite(value)) return;
    most = std::max(most, std::abs(value));
    if (value != 0) least = std::min(least, std::abs(value));
  }
  const bool has_zero = owned.format.bits < 6 || std::ranges::find(values, 0.0f) != values.end();
  if (most == 0 || least < most * 0x1p-13f || !has_zero) return;
  const float unit = std::ldexp(1.0f, std::ilogb(most));
  for (float value : values) owned.halves.push_back(round_to_fp16(value / unit));
  owned.format.half_unit = unit;
}

using SharedFormat = std::shared_ptr<const OwnedFormat>;

SharedFormat make_format(const std::string& rounding, int bits, float low, float high, float max, int emax,
                         bool zero_point, const std::string& scale, int64_t group, int mantissa_bits, int min_exponent,
                         ConstFloats thresholds, ConstBytes codes, ConstFloats values) {
  const auto made = std::make_shared<OwnedFormat>();
  OwnedFormat& owned = *made;
  Format& format = owned.format;
  format.rounding = pick<Rounding>(rounding, {{"integer", Rounding::integer},
                                              {"minifloat", Rounding::minifloat},
                                              {"table", Rounding::table},
                                              {"bf16", Rounding::bf16},
                                              {"fp16", Rounding::fp16}});
  format.scale = pick<ScaleType>(scale, {{"none", ScaleType::none},
                                         {"e8m0", ScaleType::e8m0},
                                         {"bf16", ScaleType::bf16},
                                         {"fp16", ScaleType::fp16},
                                         {"fp32", ScaleType::fp32}});
  const bool half = format.rounding == Rounding::bf16 || format.rounding == Rounding::fp16;
  require(mantissa_bits >= 0 && mantissa_bits <= 7 && min_exponent >= -126 && min_exponent <= 0, "not a minifloat");
  require(half ? bits == 16 : bits >= 1 && bits <= 8, "a code has 1 to 8 bits, or 16");
  require(group >= 1, "a group has at least one input");
  require(!zero_point || (format.rounding == Rounding::integer && low == 0), "zero points are of unsigned integers");
  format.bits = bits;
  format.low = low;
  format.high = high;
  format.max = max;
  format.emax = emax;
  format.zero_point = zero_point;
  format.group = group;
  format.mantissa_bits = mantissa_bits;
  format.min_exponent = min_exponent;
  set_tables(owned, thresholds, codes, values);
  const bool table = format.rounding == Rounding::table || format.rounding == Rounding::minifloat;
  if (table && bits == 4 && format.scale != ScaleType::none) set_integers(owned);
  if (table && bits <= 6) set_halves(owned);
  if (has_half_range(format)) format.half_unit = format.scale == ScaleType::none ? 1.0f : 0.0f;
  if (format.rounding == Rounding::minifloat && bits == 8 && mantissa_bits == 3) format.half_unit = 256.0f;
  format.thresholds = owned.thresholds.data();
  format.codes = owned.codes.data();
  format.values = owned.values.data();
  format.bf16s = owned.bf16s.data();
  format.integers = owned.integers.empty() ? nullptr : owned.integers.data();
  format.halves = owned.halves.empty() ? nullptr : owned.halves.data();
  return made;
}

int scale_bytes(ScaleType type) {
  switch (type) {
    case ScaleType::none:
      return 0;
    case ScaleType::e8m0:
      return 1;
    case ScaleType::fp32:
      return 4;
    default:
      return 2;
  }
}

MatrixShape make_shape(const Format& format, int64_t rows, int64_t cols, int operand_bits, bool sparse) {
  constexpr int64_t kLimit = int64_t{1} << 40;
  require(rows >= 1 && cols >= 1 && rows <= kLimit && cols <= kLimit, "sides must be positive");
  require(rows <= kLimit / cols, "the matrix is too large");
  require(operand_bits == 8 || operand_bits == 16, "an operand has 8 or 16 bits");
  require(format.bits <= operand_bits, "a 16-bit code needs a 16-bit operand");
  const bool scaled = format.scale != ScaleType::none;
  return {rows,
          cols,
          format.bits,
          operand_bits,
          sparse,
          scaled ? (cols + format.group - 1) / format.group : 0,
          scale_bytes(format.scale),
          format.zero_point};
}

// Starts ascend, and each block's bytes are what its mask bits ask for, so that no kernel can leave the
// arrays.
void check_offsets(const MatrixShape& shape, const int64_t* offsets, int64_t codes_size) {
  require(offsets[0] == 0, "offsets must start at 0");
  for (int64_t block = 0; block < shape.blocks(); ++block) {
    const int64_t most = stream_bytes(shape.bits, block_codes(shape.block()));
    const int64_t bytes = offsets[block + 1] - offsets[block];
    require(offsets[block + 1] >= offsets[block] && bytes <= most, "offsets must ascend by at most a block");
  }
  require(offsets[shape.blocks()] == codes_size - kSlackBytes, "offsets must end at the last code");
}

void check_masks(const MatrixShape& shape, const int64_t* offsets, const uint8_t* mask) {
  const int64_t bytes = shape.block_mask_bytes();
  for (int64_t block = 0; block < shape.blocks(); ++block) {
    const int64_t kept = count_bits(mask + block * bytes, bytes);
    require(stream_bytes(shape.bits, kept) == offsets[block + 1] - offsets[block],
            "mask and offsets disagree about the codes of block " + std::to_string(block));
  }
}

// A dropped weight is zero, and has the code of its zero point.
void check_whole_zeros(const MatrixShape& shape, const uint8_t* zeros) {
  const int steps = 1 << (8 - shape.bits);
  const auto whole = [&](uint8_t zero) { return zero % steps == 0; };
  require(std::all_of(zeros, zeros + shape.scale_count(), whole), "zero points of a sparse matrix must be whole");
}

Streams check_streams(const MatrixShape& shape, Bytes codes, Bytes mask, ConstOffsets offsets, Bytes scales,
                      Bytes zeros) {
  require_size(mask, shape.blocks() * shape.block_mask_bytes(), "mask");
  require_size(offsets, shape.sparse ? shape.blocks() + 1 : 0, "offsets");
  require_size(scales, shape.scale_count() * shape.scale_bytes, "scales");
  require_size(zeros, shape.zero_points ? shape.scale_count() : 0, "zeros");
  const int64_t codes_size = static_cast<int64_t>(codes.size());
  if (shape.sparse) {
    check_offsets(shape, offsets.data(), codes_size);
  } else {
    require_size(codes, shape.blocks() * shape.block_code_bytes(), "codes");
  }
  return {codes.data(), shape.sparse ? mask.data() : nullptr, offsets.data(), shape.groups ? scales.data() : nullptr,
          shape.zero_points ? zeros.data() : nullptr};
}

Weights check_weights(const MatrixShape& shape, ConstBytes data, const std::string& type, ConstBytes keep) {
  const Real real = real_of(type);
  require_size(data, shape.rows * shape.cols * (real == Real::f32 ? 4 : 2), "weights");
  if (keep.size()) require_size(keep, shape.rows * shape.cols, "keep");
  return {data.data(), real, keep.size() ? keep.data() : nullptr};
}

// Codes without scales: what pack_codes and unpack_codes deal in.
MatrixShape codes_shape(const OwnedFormat& format, int64_t rows, int64_t cols, int operand_bits, bool sparse) {
  MatrixShape shape = make_shape(format.format, rows, cols, operand_bits, sparse);
  shape.groups = 0;
  shape.zero_points = false;
  return shape;
}

void py_count_kept(const OwnedFormat& format, int64_t rows, int64_t cols, ConstBytes data, const std::string& type,
                   ConstBytes keep, int threads, Offsets counts) {
  const MatrixShape shape = make_shape(format.format, rows, cols, 16, true);
  const Weights weights = check_weights(shape, data, type, keep);
  require_size(counts, shape.blocks(), "counts");
  nb::gil_scoped_release release;
  count_kept(shape, weights, threads, counts.data());
}

int64_t py_pack_weights(const OwnedFormat& format, int64_t rows, int64_t cols, int operand_bits, bool sparse,
                        ConstBytes data, const std::string& type, ConstBytes keep, bool scales_given, Bytes codes,
                        Bytes mask, ConstOffsets offsets, Bytes scales, Bytes zeros, int threads) {
  const MatrixShape shape = make_shape(format.format, rows, cols, operand_bits, sparse);
  const Weights weights = check_weights(shape, data, type, keep);
  const Streams streams = check_streams(shape, codes, mask, offsets, scales, zeros);
  nb::gil_scoped_release release;
  return pack_weights(shape, format.format, weights, scales_given, streams, threads);
}

void py_pack_codes(const OwnedFormat& format, int64_t rows, int64_t cols, int operand_bits, bool sparse,
                   ConstBytes source, ConstBytes keep, Bytes codes, Bytes mask, ConstOffsets offsets, int threads) {
  const MatrixShape shape = codes_shape(format, rows, cols, operand_bits, sparse);
  require_size(source, rows * cols * code_bytes(shape.bits), "codes");
  require_size(keep, sparse ? rows * cols : 0, "keep");
  const Streams streams = check_streams(shape, codes, mask, offsets, {}, {});
  nb::gil_scoped_release release;
  pack_codes(shape, source.data(), keep.data(), streams, threads);
}

// Lets other threads run Python, until it is told to stop.
class OthersRun {
 public:
  OthersRun() : mine_(PyEval_SaveThread()) {}
  ~OthersRun() { stop(); }
  OthersRun(const OthersRun&) = delete;
  OthersRun& operator=(const OthersRun&) = delete;

  void stop() {
    if (mine_) PyEval_RestoreThread(std::exchange(mine_, nullptr));
  }

 private:
  PyThreadState* mine_;
};

// A packed matrix whose arrays have been checked, kept for as many calls as come.
class PackedArrays {
 public:
  PackedArrays(SharedFormat format, int64_t rows, int64_t cols, int operand_bits, bool sparse, Bytes codes, Bytes mask,
               ConstOffsets offsets, Bytes scales, Bytes zeros)
      : format_(std::move(format)),
        shape_(make_shape(format_->format, rows, cols, operand_bits, sparse)),
        streams_(check_streams(shape_, codes, mask, offsets, scales, zeros)),
        codes_(codes),
        mask_(mask),
        offsets_(offsets),
        scales_(scales),
        zeros_(zeros) {
    if (sparse) check_masks(shape_, offsets.data(), mask.data());
    if (sparse && shape_.zero_points) check_whole_zeros(shape_, zeros.data());
    half_exponent_ = half_exponent(shape_, format_->format, streams_);
  }

  void unpack_codes(Bytes to, Bytes keep, int threads) const {
    require_size(to, shape_.rows * shape_.cols * code_bytes(shape_.bits), "codes");
    require_size(keep, shape_.sparse ? shape_.rows * shape_.cols : 0, "keep");
    nb::gil_scoped_release release;
    tilepress::unpack_codes(shape_, streams_, to.data(), shape_.sparse ? keep.data() : nullptr, threads);
  }

  void unpack_weights(Floats to, int threads) const {
    require_size(to, shape_.rows * shape_.cols, "weights");
    nb::gil_scoped_release release;
    tilepress::unpack_weights(shape_, format_->format, streams_, to.data(), threads);
  }

  // x · Wᵀ in a new tensor, with mantissa -1 for activations as they are and kBf16 for those that may be rounded to
  // bf16; None where x is no plain tensor that fits, with nothing done: kernels/linear.py then says why, or copies it.
  nb::object linear(nb::handle x, int64_t group, int mantissa, int threads) const {
    Tensor tensor;
    if (!view_tensor(x, tensor) || !tensor.ndim || tensor.shape[tensor.ndim - 1] != shape_.cols) return nb::none();
    int64_t batch = 1;
    for (int32_t i = 0; i + 1 < tensor.ndim; ++i) batch *= tensor.shape[i];
    if (batch < 1) return nb::none();
    require(threads >= 1, "at least one thread is needed");
    const Real real = real_of(tensor);
    const Activations activations = {static_cast<const uint8_t*>(tensor.data), real, batch,
                                     precision_of(real, mantissa)};
    const IntegerFormat rounding = mantissa < 0 ? IntegerFormat{0, 0} : check_rounding(group, mantissa);
    NewTensor y(tensor, shape_.rows);
    const Outputs outputs = {y.data(), real, nullptr};
    nb::object result;
    OthersRun others;
    Aside give([&] {
      others.stop();  // for as long as the last threads take
      result = y.give();
    });
    if (mantissa < 0) {
      tilepress::linear_float(weights(), activations, float_way(weights(), batch, activations.precision), outputs,
                              threads);
    } else {
      tilepress::linear_integer(weights(), activations, rounding, integer_way(weights(), batch, rounding), outputs,
                                threads);
    }
    give.finish();
    return result;
  }

  // Addresses rather than arrays: a layer is called too often to ask each tensor what it is. The only caller,
  // kernels/linear.py, has checked type, device, order and size: x [batch, cols], bias [rows] of float32 or 0, y
  // [batch, rows].
  void linear_integer(uintptr_t x, const std::string& type, int64_t batch, uintptr_t bias, uintptr_t y, int64_t group,
                      int mantissa, const std::string& way, int threads) const {
    const IntegerFormat rounding = check_rounding(group, mantissa);
    const Real real = check_call(x, type, batch, y, threads);
    nb::gil_scoped_release release;
    tilepress::linear_integer(weights(), {as<const uint8_t>(x), real, batch}, rounding,
                              way.empty() ? integer_way(weights(), batch, rounding) : way,
                              {as<uint8_t>(y), real, as<const float>(bias)}, threads);
  }

  std::string float_way_of(int64_t batch, const std::string& type) const {
    return std::string(float_way(weights(), batch, real_of(type)));
  }

  std::string integer_way_of(int64_t batch, int64_t group, int mantissa) const {
    return std::string(integer_way(weights(), batch, check_rounding(group, mantissa)));
  }

  // `mantissa` -1 or kBf16, as above; `way` is one of those of dispatch/linear.h; the one that fits best if empty.
  void linear_float(uintptr_t x, const std::string& type, int64_t batch, uintptr_t bias, uintptr_t y, int mantissa,
                    const std::string& way, int threads) const {
    const Real real = check_call(x, type, batch, y, threads), precision = precision_of(real, mantissa);
    nb::gil_scoped_release release;
    tilepress::linear_float(weights(), {as<const uint8_t>(x), real, batch, precision},
                            way.empty() ? float_way(weights(), batch, precision) : way,
                            {as<uint8_t>(y), real, as<const float>(bias)}, threads);
  }

  PackedWeights weights() const { return {shape_, format_->format, streams_, half_exponent_}; }
  IntegerFormat check_rounding(int64_t group, int mantissa) const {
    require(format_->format.rounding == Rounding::integer && shape_.operand_bits == 8,
            "integer activations want integer weights in 8-bit tiles");
    const bool known = group == 16 || group == 32 || group == 64 || group == 128;
    require(mantissa == 0 ? group == 0 : mantissa >= 1 && mantissa <= kMaxMantissa && known,
            "block floating point has groups of 16, 32, 64 or 128 and 1 to 16 bits");
    return {group, mantissa};
  }

 private:
  static constexpr int kBf16 = -2;  // instead of a mantissa

  static Real precision_of(Real type, int mantissa) { return mantissa == kBf16 ? Real::bf16 : type; }

  static Real check_call(uintptr_t x, const std::string& type, int64_t batch, uintptr_t y, int threads) {
    require(threads >= 1 && batch >= 1, "at least one thread and one row are needed");
    require(x && y, "x and y must have memory");
    return real_of(type);
  }

  // What a call reads, side by side.
  SharedFormat format_;
  MatrixShape shape_;
  Streams streams_;
  int half_exponent_;
  // What owns the streams.
  Bytes codes_, mask_;
  ConstOffsets offsets_;
  Bytes scales_, zeros_;
};

}  // namespace

LinearLayer linear_layer(nb::handle handle) {
  const auto parts = nb::cast<nb::tuple>(handle);
  require(parts.size() == 4, "a linear layer has four parts");
  const auto& matrix = nb::cast<const PackedArrays&>(parts[0]);
  const int mantissa = nb::cast<int>(parts[3]);
  const bool integers = mantissa >= 0;
  const IntegerFormat rounding =
      integers ? matrix.check_rounding(nb::cast<int64_t>(parts[2]), mantissa) : IntegerFormat{0, 0};
  return {matrix.weights(), as<const float>(nb::cast<uintptr_t>(parts[1])), integers, rounding};
}

void bind_matrices(nb::module_& m) {
  using namespace nb::literals;
  nb::class_<OwnedFormat>(m, "Format")
      .def(nb::new_(&make_format), nb::kw_only(), "rounding"_a, "bits"_a, "low"_a, "high"_a, "max"_a, "emax"_a,
           "zero_point"_a, "scale"_a, "group"_a, "mantissa_bits"_a, "min_exponent"_a, "thresholds"_a, "codes"_a,
           "values"_a);

  m.def("count_kept", &py_count_kept, "format"_a, "rows"_a, "cols"_a, as_it_is("data"), "type"_a, as_it_is("keep"),
        "threads"_a, as_it_is("counts"));
  m.def("pack_weights", &py_pack_weights, "format"_a, "rows"_a, "cols"_a, "operand_bits"_a, "sparse"_a,
        as_it_is("data"), "type"_a, as_it_is("keep"), "scales_given"_a, as_it_is("codes"), as_it_is("mask"),
        as_it_is("offsets"), as_it_is("scales"), as_it_is("zeros"), "threads"_a);
  m.def("pack_codes", &py_pack_codes, "format"_a, "rows"_a, "cols"_a, "operand_bits"_a, "sparse"_a, as_it_is("source"),
        as_it_is("keep"), as_it_is("codes"), as_it_is("mask"), as_it_is("offsets"), "threads"_a);

  m.def("use_tensor_type", &use_tensor_type, "type"_a);
  nb::class_<PackedArrays>(m, "Matrix")
      .def(nb::init<SharedFormat, int64_t, int64_t, int, bool, Bytes, Bytes, ConstOffsets, Bytes, Bytes>(), "format"_a,
           "rows"_a, "cols"_a, "operand_bits"_a, "sparse"_a, as_it_is("codes"), as_it_is("mask"), as_it_is("offsets"),
           as_it_is("scales"), as_it_is("zeros"))
      .def("unpack_codes", &PackedArrays::unpack_codes, as_it_is("to"), as_it_is("keep"), "threads"_a)
      .def("unpack_weights", &PackedArrays::unpack_weights, as_it_is("to"), "threads"_a)
      .def("linear", &PackedArrays::linear)
      .def("linear_integer", &PackedArrays::linear_integer)
      .def("linear_float", &PackedArrays::linear_float)
      .def("float_way", &PackedArrays::float_way_of)
      .def("integer_way", &PackedArrays::integer_way_of);
}

}  // namespace tilepress
