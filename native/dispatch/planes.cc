#include "dispatch/planes.h"

#include "dispatch/parallel.h"
#include "dispatch/registry.h"

namespace tilepress {
namespace {

// Groups per work item: a multiple of 8, so that its fields are whole bytes.
constexpr int64_t kChunkGroups = 64;

constexpr int kFieldBits = 5;

// Rows of whole groups are treated as one long row.
PlanesShape joined(const PlanesShape& shape) {
  if (shape.cols % kPlaneValues) return shape;
  return {1, shape.rows * shape.cols, shape.mantissa};
}

// Consecutive groups of a chunk: full groups of one row, or one group that is not full.
struct Run {
  int64_t group, count;  // the first group, counted from the chunk's first, and the number of groups
  int64_t value;         // index of the first value in the tensor
  int64_t values;        // number of values
};

template <class Work>
void for_runs(const PlanesShape& shape, int64_t begin, int64_t end, const Work& work) {
  const int64_t full = shape.cols / kPlaneValues;
  for (int64_t group = begin; group < end;) {
    const int64_t row = group / shape.row_groups(), at = group % shape.row_groups();
    const int64_t value = row * shape.cols + at * kPlaneValues;
    const bool whole = at < full;
    const int64_t count = whole ? std::min(full - at, end - group) : 1;
    work(Run{group - begin, count, value, whole ? count * kPlaneValues : shape.cols - at * kPlaneValues});
    group += count;
  }
}

// Fields of five bits as a stream of bytes, eight fields in five bytes; the last may be fewer.
void pack_fields(const uint8_t* fields, int64_t count, uint8_t* to) {
  for (int64_t i = 0; i < count; i += 8, to += kFieldBits) {
    const int64_t here = std::min<int64_t>(8, count - i);
    uint64_t bits = 0;
    for (int64_t j = 0; j < here; ++j) bits |= static_cast<uint64_t>(fields[i + j]) << kFieldBits * j;
    std::memcpy(to, &bits, static_cast<size_t>((here * kFieldBits + 7) / 8));
  }
}

void unpack_fields(const uint8_t* from, int64_t count, uint8_t* fields) {
  for (int64_t i = 0; i < count; i += 8, from += kFieldBits) {
    const int64_t here = std::min<int64_t>(8, count - i);
    uint64_t bits = 0;
    std::memcpy(&bits, from, static_cast<size_t>((here * kFieldBits + 7) / 8));
    for (int64_t j = 0; j < here; ++j) fields[i + j] = bits >> kFieldBits * j & 31;
  }
}

// A group as finite fp16 values.
Saturated saturate(const uint8_t* values, FloatType type, uint16_t* halves) {
  float floats[kPlaneValues];
  load_row({values, type, nullptr}, 0, kPlaneValues, floats);
  Saturated saturated = {0, count_bad(floats, kPlaneValues)};
  for (int i = 0; i < kPlaneValues; ++i) {
    const uint32_t magnitude = std::bit_cast<uint32_t>(floats[i]) & 0x7fffffff;
    saturated.all += magnitude >= std::bit_cast<uint32_t>(65520.0f);
    halves[i] = magnitude > 0x7f800000 ? uint16_t{0} : float_to_fp16(floats[i]);
  }
  return saturated;
}

class Packing {
 public:
  Packing(const PlanesShape& shape, const uint8_t* values, FloatType type, const Planes& to)
      : shape_(joined(shape)), values_(values), type_(type), to_(to), kernel_(choose<ops::pack_planes_fp>()) {}

  Saturated run(int threads) {
    const int64_t groups = shape_.groups();
    parallel_for((groups + kChunkGroups - 1) / kChunkGroups, threads, [&](int, int64_t chunk) {
      pack_chunk(chunk * kChunkGroups, std::min((chunk + 1) * kChunkGroups, groups));
    });
    return {all_, not_finite_};
  }

 private:
  void pack_chunk(int64_t begin, int64_t end) {
    uint8_t fields[kChunkGroups];
    for_runs(shape_, begin, end, [&](const Run& run) {
      alignas(64) uint8_t padded[kPlaneValues * sizeof(float)] = {};
      const uint8_t* from = values_ + run.value * bytes_of(type_);
      if (run.values % kPlaneValues) {
        std::memcpy(padded, from, static_cast<size_t>(run.values * bytes_of(type_)));
        from = padded;
      }
      pack_run(from, run.count, to_.planes + (begin + run.group) * shape_.group_bytes(), fields + run.group);
    });
    pack_fields(fields, end - begin, to_.fields + begin / 8 * kFieldBits);
  }

  void pack_run(const uint8_t* from, int64_t groups, uint8_t* planes, uint8_t* fields) {
    kernel_(type_, from, groups, shape_.mantissa, planes, fields);
    for (int64_t group = 0; group < groups; ++group) {
      if (fields[group] <= kMaxField) continue;
      uint16_t halves[kPlaneValues];
      const Saturated saturated = saturate(from + group * kPlaneValues * bytes_of(type_), type_, halves);
      all_ += saturated.all;
      not_finite_ += saturated.not_finite;
      kernel_(FloatType::f16, halves, 1, shape_.mantissa, planes + group * shape_.group_bytes(), fields + group);
    }
  }

  PlanesShape shape_;
  const uint8_t* values_;
  FloatType type_;
  Planes to_;
  KernelOf<ops::pack_planes_fp> kernel_;
  std::atomic<int64_t> all_{0}, not_finite_{0};
};

}  // namespace

Saturated pack_planes(const PlanesShape& shape, const uint8_t* values, FloatType type, const Planes& to, int threads) {
  return Packing(shape, values, type, to).run(threads);
}

int64_t unpack_planes(const PlanesShape& tensor_shape, const Planes& from, uint16_t* halves, int threads) {
  const auto kernel = choose<ops::unpack_f16_planes>();
  const PlanesShape shape = joined(tensor_shape);
  std::atomic<int64_t> bad{0};
  parallel_for((shape.groups() + kChunkGroups - 1) / kChunkGroups, threads, [&](int, int64_t chunk) {
    const int64_t begin = chunk * kChunkGroups, end = std::min(begin + kChunkGroups, shape.groups());
    uint8_t fields[kChunkGroups];
    unpack_fields(from.fields + begin / 8 * kFieldBits, end - begin, fields);
    bad += std::count_if(fields, fields + (end - begin), [](uint8_t field) { return field > kMaxField; });
    for_runs(shape, begin, end, [&](const Run& run) {
      const uint8_t* planes = from.planes + (begin + run.group) * shape.group_bytes();
      uint16_t padded[kPlaneValues];
      const bool full = run.values % kPlaneValues == 0;
      kernel(planes, fields + run.group, run.count, shape.mantissa, full ? halves + run.value : padded);
      if (!full) std::copy(padded, padded + run.values, halves + run.value);
    });
  });
  return bad;
}

}  // namespace tilepress
