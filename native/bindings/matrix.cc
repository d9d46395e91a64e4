// Bindings of packed matrices.
#include "dispatch/matrix.h"

#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <stdexcept>
#include <utility>
#include <vector>

#include "bindings/arguments.h"
#include "bindings/bindings.h"
#include "bindings/format.h"
#include "bindings/tensors.h"
#include "dispatch/deferred.h"
#include "dispatch/parallel.h"
#include "dispatch/variants.h"

namespace tilepress {
namespace {

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
    const int64_t nonzeros = count_bits(mask + block * bytes, bytes);
    require(stream_bytes(shape.bits, nonzeros) == offsets[block + 1] - offsets[block],
            "mask and offsets disagree about the codes of block " + std::to_string(block));
  }
}

// A dropped weight is zero, and has the code of its zero point.
void check_whole_zeros(const MatrixShape& shape, const uint8_t* zeros) {
  const int steps = 1 << (8 - shape.bits);
  const auto whole = [&](uint8_t zero) { return zero % steps == 0; };
  require(std::all_of(zeros, zeros + shape.scale_count(), whole), "zero points of a sparse matrix must be whole");
}

// A copy: kernels find codes by offsets, which their owner could overwrite after they were checked.
std::vector<int64_t> copy_of(const ConstOffsets& offsets) { return {offsets.data(), offsets.data() + offsets.size()}; }

Streams check_streams(const MatrixShape& shape, Bytes codes, Bytes mask, const std::vector<int64_t>& offsets,
                      Bytes scales, Bytes zeros) {
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
  const FloatType real = float_type_of(type);
  require_size(data, shape.rows * shape.cols * (real == FloatType::f32 ? 4 : 2), "weights");
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

void py_count_nonzeros(const OwnedFormat& format, int64_t rows, int64_t cols, ConstBytes data, const std::string& type,
                       ConstBytes keep, int threads, Offsets counts) {
  const MatrixShape shape = make_shape(format.format, rows, cols, 16, true);
  const Weights weights = check_weights(shape, data, type, keep);
  require_size(counts, shape.blocks(), "counts");
  const int workers = check_threads(threads);
  nb::gil_scoped_release release;
  count_nonzeros(shape, weights, workers, counts.data());
}

int64_t py_pack_weights(const OwnedFormat& format, int64_t rows, int64_t cols, int operand_bits, bool sparse,
                        ConstBytes data, const std::string& type, ConstBytes keep, bool scales_given, Bytes codes,
                        Bytes mask, ConstOffsets offsets, Bytes scales, Bytes zeros, int threads) {
  const MatrixShape shape = make_shape(format.format, rows, cols, operand_bits, sparse);
  const Weights weights = check_weights(shape, data, type, keep);
  const std::vector<int64_t> starts = copy_of(offsets);
  const Streams streams = check_streams(shape, codes, mask, starts, scales, zeros);
  const int workers = check_threads(threads);
  nb::gil_scoped_release release;
  return pack_weights(shape, format.format, weights, scales_given, streams, workers);
}

void py_pack_codes(const OwnedFormat& format, int64_t rows, int64_t cols, int operand_bits, bool sparse,
                   ConstBytes source, ConstBytes keep, Bytes codes, Bytes mask, ConstOffsets offsets, int threads) {
  const MatrixShape shape = codes_shape(format, rows, cols, operand_bits, sparse);
  require_size(source, rows * cols * code_bytes(shape.bits), "codes");
  require_size(keep, sparse ? rows * cols : 0, "keep");
  const std::vector<int64_t> starts = copy_of(offsets);
  const Streams streams = check_streams(shape, codes, mask, starts, {}, {});
  const int workers = check_threads(threads);
  nb::gil_scoped_release release;
  pack_codes(shape, source.data(), keep.data(), streams, workers);
}

// Releases the GIL; `reacquire()` takes it back early.
class ScopedGilRelease {
 public:
  ScopedGilRelease() : state_(PyEval_SaveThread()) {}
  ~ScopedGilRelease() { reacquire(); }
  ScopedGilRelease(const ScopedGilRelease&) = delete;
  ScopedGilRelease& operator=(const ScopedGilRelease&) = delete;

  void reacquire() {
    if (state_) PyEval_RestoreThread(std::exchange(state_, nullptr));
  }

 private:
  PyThreadState* state_;
};

// A bias as kernels take it: float32 as it lies, halves converted.
class Bias {
 public:
  // False where it is neither None nor a plain tensor [rows].
  bool view(nb::handle given, int64_t rows) {
    Tensor tensor;
    if (given.is_none()) return true;
    if (!view_tensor(given, tensor) || tensor.ndim != 1 || tensor.shape[0] != rows) return false;
    floats_ = static_cast<const float*>(tensor.data);
    if (float_type_of(tensor) == FloatType::f32) return true;
    converted_.resize(static_cast<size_t>(rows));
    load_row({static_cast<const uint8_t*>(tensor.data), float_type_of(tensor), nullptr}, 0, rows, converted_.data());
    floats_ = converted_.data();
    return true;
  }
  const float* floats() const { return floats_; }

 private:
  const float* floats_ = nullptr;
  std::vector<float> converted_;
};

// A packed matrix whose arrays have been checked once, for any number of calls.
class PackedArrays {
 public:
  PackedArrays(SharedFormat format, int64_t rows, int64_t cols, int operand_bits, bool sparse, Bytes codes, Bytes mask,
               ConstOffsets offsets, Bytes scales, Bytes zeros)
      : format_(std::move(format)),
        shape_(make_shape(format_->format, rows, cols, operand_bits, sparse)),
        offsets_(copy_of(offsets)),
        streams_(check_streams(shape_, codes, mask, offsets_, scales, zeros)),
        codes_(codes),
        mask_(mask),
        scales_(scales),
        zeros_(zeros) {
    if (sparse) check_masks(shape_, offsets_.data(), mask.data());
    if (sparse && shape_.zero_points) check_whole_zeros(shape_, zeros.data());
    half_exponent_ = half_exponent(shape_, format_->format, streams_);
  }
  PackedArrays(const PackedArrays&) = delete;

  void unpack_codes(Bytes to, Bytes keep, int threads) const {
    require_size(to, shape_.rows * shape_.cols * code_bytes(shape_.bits), "codes");
    require_size(keep, shape_.sparse ? shape_.rows * shape_.cols : 0, "keep");
    const int workers = check_threads(threads);
    nb::gil_scoped_release release;
    tilepress::unpack_codes(shape_, streams_, to.data(), shape_.sparse ? keep.data() : nullptr, workers);
  }

  void unpack_weights(Floats to, int threads) const {
    require_size(to, shape_.rows * shape_.cols, "weights");
    const int workers = check_threads(threads);
    nb::gil_scoped_release release;
    tilepress::unpack_weights(shape_, format_->format, streams_, to.data(), workers);
  }

  // Rows `ids` as `type`, to [ids, cols].
  void gather(ConstOffsets ids, const std::string& type, Bytes to, int threads) const {
    const FloatType real = float_type_of(type);
    const int64_t count = static_cast<int64_t>(ids.size());
    require_size(to, count * shape_.cols * bytes_of(real), "rows");
    const int workers = check_threads(threads);
    const std::vector<int64_t> checked = copy_of(ids);  // their owner could overwrite them meanwhile
    for (const int64_t id : checked) {
      if (id < 0 || id >= shape_.rows) {
        throw std::out_of_range("there are rows 0 to " + std::to_string(shape_.rows - 1) + ", and no row " +
                                std::to_string(id));
      }
    }
    nb::gil_scoped_release release;
    gather_rows(shape_, format_->format, streams_, checked.data(), count, real, to.data(), workers);
  }

  // x · Wᵀ + bias, which may be None, in a new tensor, with mantissa -1 for activations as they are and kBf16 for those
  // that may be rounded to bf16; None where one is no plain tensor that fits, with nothing done: kernels/linear.py then
  // says why, or copies it.
  nb::object linear(nb::handle x, nb::handle bias, int64_t group, int mantissa, int threads) const {
    Tensor tensor;
    Bias shift;
    if (!view_tensor(x, tensor) || !tensor.ndim || tensor.shape[tensor.ndim - 1] != shape_.cols) return nb::none();
    if (!shift.view(bias, shape_.rows)) return nb::none();
    const int64_t batch = count_of(tensor) / shape_.cols;
    if (batch < 1) return nb::none();
    const int workers = check_threads(threads);
    const FloatType real = float_type_of(tensor);
    const Rounded rounded = check_rounded(group, mantissa);
    NewTensor y(tensor, shape_.rows);
    nb::object result;
    ScopedGilRelease release;
    Deferred make_result([&] {  // while the last workers finish
      release.reacquire();
      result = y.to_python();
    });
    multiply({static_cast<const uint8_t*>(tensor.data), real, batch, rounded.precision_of(real)}, rounded, "",
             {y.data(), real, shift.floats()}, workers);
    make_result.finish();
    return result;
  }

  // The same for arrays of bytes: x [batch, cols] and y [batch, rows] of `type`, bias [rows] or empty. `variant` is one
  // of those of dispatch/variants.h; chosen by their row limits if empty.
  void linear_into(ConstBytes x, const std::string& type, ConstFloats bias, Bytes y, int64_t group, int mantissa,
                   const std::string& variant, int threads) const {
    const FloatType real = float_type_of(type);
    const int64_t size = bytes_of(real), batch = static_cast<int64_t>(x.size()) / (size * shape_.cols);
    require(batch >= 1, "at least one row is needed");
    require_size(x, batch * shape_.cols * size, "x");
    require_size(y, batch * shape_.rows * size, "y");
    if (bias.size()) require_size(bias, shape_.rows, "bias");
    const Rounded rounded = check_rounded(group, mantissa);
    const int workers = check_threads(threads);
    nb::gil_scoped_release release;
    multiply({x.data(), real, batch, rounded.precision_of(real)}, rounded, variant,
             {y.data(), real, bias.size() ? bias.data() : nullptr}, workers);
  }

  std::string float_variant_of(int64_t batch, const std::string& type) const {
    return std::string(float_variant(weights(), batch, float_type_of(type)).operation);
  }

  std::string integer_variant_of(int64_t batch, int64_t group, int mantissa) const {
    return std::string(integer_variant(weights(), batch, check_rounding(group, mantissa)).operation);
  }

  // Operations that may be chosen for these weights, in the order in which they are tried.
  std::vector<std::string_view> float_candidates_of(const std::string& type) const {
    return float_candidates(weights(), float_type_of(type));
  }
  std::vector<std::string_view> integer_candidates_of(int64_t group, int mantissa) const {
    return integer_candidates(weights(), check_rounding(group, mantissa));
  }

  std::string weight_class() const { return class_name(class_of(weights())); }

  PackedWeights weights() const { return {shape_, format_->format, streams_, half_exponent_}; }
  IntegerFormat check_rounding(int64_t group, int mantissa) const {
    require(format_->format.rounding == Rounding::integer && shape_.operand_bits == 8,
            "integer activations want integer weights in 8-bit tiles");
    const bool known = group == 16 || group == 32 || group == 64 || group == 128;
    require(mantissa == 0 ? group == 0 : mantissa >= 1 && mantissa <= kMaxMantissa && known,
            "block floating point has groups of 16, 32, 64 or 128 and 1 to 16 bits");
    return {group, mantissa};
  }

  static constexpr int kBf16 = -2;  // instead of a mantissa

  // Whether and how activations are rounded to integers; others stay as they are, or may be rounded to bf16.
  struct Rounded {
    bool integers, bf16;
    IntegerFormat format;

    FloatType precision_of(FloatType type) const { return bf16 ? FloatType::bf16 : type; }
  };
  Rounded check_rounded(int64_t group, int mantissa) const {
    if (mantissa >= 0) return {true, false, check_rounding(group, mantissa)};
    return {false, mantissa == kBf16, {0, 0}};
  }

 private:
  void multiply(const Activations& x, const Rounded& rounded, std::string_view variant, const Outputs& outputs,
                int threads) const {
    if (!rounded.integers) {
      tilepress::linear_float(weights(), x,
                              variant.empty() ? float_variant(weights(), x.batch, x.precision) : float_variant(variant),
                              outputs, threads);
    } else {
      tilepress::linear_integer(
          weights(), x, rounded.format,
          variant.empty() ? integer_variant(weights(), x.batch, rounded.format) : integer_variant(variant), outputs,
          threads);
    }
  }

  // What a call reads, side by side.
  SharedFormat format_;
  MatrixShape shape_;
  std::vector<int64_t> offsets_;
  Streams streams_;
  int half_exponent_;
  // What owns the other streams.
  Bytes codes_, mask_, scales_, zeros_;
};

}  // namespace

LinearLayer linear_layer(nb::handle handle) {
  const auto parts = nb::cast<nb::tuple>(handle);
  require(parts.size() == 4, "a linear layer has four parts");
  const auto& matrix = nb::cast<const PackedArrays&>(parts[0]);
  const auto [integers, bf16, rounding] = matrix.check_rounded(nb::cast<int64_t>(parts[2]), nb::cast<int>(parts[3]));
  const PackedWeights weights = matrix.weights();
  const nb::handle bias = parts[1];
  Tensor floats{};
  const bool fits = bias.is_none() || view_values(bias, FloatType::f32, weights.shape.rows, floats);
  require(fits, "a bias is a plain float32 tensor of " + std::to_string(weights.shape.rows) + " values");
  return {weights, static_cast<const float*>(floats.data), integers, rounding, bf16};
}

void bind_matrices(nb::module_& m) {
  using namespace nb::literals;
  m.def("count_nonzeros", &py_count_nonzeros, "format"_a, "rows"_a, "cols"_a, no_convert("data"), "type"_a,
        no_convert("keep"), "threads"_a, no_convert("counts"));
  m.def("pack_weights", &py_pack_weights, "format"_a, "rows"_a, "cols"_a, "operand_bits"_a, "sparse"_a,
        no_convert("data"), "type"_a, no_convert("keep"), "scales_given"_a, no_convert("codes"), no_convert("mask"),
        no_convert("offsets"), no_convert("scales"), no_convert("zeros"), "threads"_a);
  m.def("pack_codes", &py_pack_codes, "format"_a, "rows"_a, "cols"_a, "operand_bits"_a, "sparse"_a,
        no_convert("source"), no_convert("keep"), no_convert("codes"), no_convert("mask"), no_convert("offsets"),
        "threads"_a);

  m.def("use_tensor_type", &use_tensor_type, "type"_a);
  nb::class_<PackedArrays>(m, "Matrix")
      .def(nb::init<SharedFormat, int64_t, int64_t, int, bool, Bytes, Bytes, ConstOffsets, Bytes, Bytes>(), "format"_a,
           "rows"_a, "cols"_a, "operand_bits"_a, "sparse"_a, no_convert("codes"), no_convert("mask"),
           no_convert("offsets"), no_convert("scales"), no_convert("zeros"))
      .def("unpack_codes", &PackedArrays::unpack_codes, no_convert("to"), no_convert("keep"), "threads"_a)
      .def("unpack_weights", &PackedArrays::unpack_weights, no_convert("to"), "threads"_a)
      .def("gather", &PackedArrays::gather, no_convert("ids"), "type"_a, no_convert("to"), "threads"_a)
      .def("linear", &PackedArrays::linear, "x"_a, "bias"_a.none(), "group"_a, "mantissa"_a, "threads"_a)
      .def("linear_into", &PackedArrays::linear_into, no_convert("x"), "type"_a, no_convert("bias"), no_convert("y"),
           "group"_a, "mantissa"_a, "variant"_a, "threads"_a)
      .def("float_variant", &PackedArrays::float_variant_of)
      .def("integer_variant", &PackedArrays::integer_variant_of)
      .def("float_candidates", &PackedArrays::float_candidates_of)
      .def("integer_candidates", &PackedArrays::integer_candidates_of)
      .def_prop_ro("weight_class", &PackedArrays::weight_class);
}

}  // namespace tilepress
