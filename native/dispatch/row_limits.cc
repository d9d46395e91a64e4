#include "dispatch/row_limits.h"

#include <algorithm>
#include <mutex>
#include <stdexcept>

namespace tilepress {
namespace {

constexpr std::array<std::string_view, 2> kDensityNames = {"dense", "sparse"};
constexpr std::array<std::string_view, kWeightKinds> kWeightNames = {"integer",      "zero_point", "lookup",
                                                                     "wide_integer", "fp16",       "other"};
constexpr std::array<std::string_view, kActivationKinds> kActivationNames = {"float32", "bf16", "fp16", "int8",
                                                                             "two_limbs"};

// Sets of activation kinds.
constexpr unsigned kF32 = 1, kBf16 = 2, kF16 = 4, kOneLimb = 8, kTwoLimbs = 16, kFloats = kF32 | kBf16 | kF16;

using OfKinds = std::array<int16_t, kWeightKinds>;
constexpr OfKinds all(int16_t rows) { return {rows, rows, rows, rows, rows, rows}; }
constexpr OfKinds integers(int16_t rows) { return {rows, rows, rows, rows}; }

// Limits of the instruction sets from `first` to `last`; where no line fits, the limit is 0.
struct BuiltIn {
  Isa first, last;
  std::string_view operation;
  unsigned activations;
  OfKinds dense, sparse;
};

// Float activations as int8 limbs: two of bf16, else three. Timed on x86; on ARM by instruction counts. The `avx512`
// set has integer kernels of AVX2 only, beside wider float kernels. fp16 counts twice where it is two rows of bf16.
constexpr BuiltIn kBuiltIn[] = {
    {Isa::neon_dotprod, Isa::neon_i8mm, "linear_f32_i8_int", kFloats, {4, 4, 3, 4}, {4, 4, 2, 4}},
    {Isa::avx2, Isa::avx2, "linear_f32_i8_int", kF32 | kF16, {2, 2, 2, 2}, {2, 0, 0, 2}},
    {Isa::avx2, Isa::avx2, "linear_f32_i8_int", kBf16, {6, 6, 3, 1}, {3, 0, 2, 1}},
    {Isa::avx512, Isa::avx512, "linear_f32_i8_int", kF32 | kF16, {1, 2, 0, 0}, {}},
    {Isa::avx512, Isa::avx512, "linear_f32_i8_int", kBf16, {2, 6, 2, 0}, {}},
    {Isa::avx512_vnni, Isa::avx512_vnni, "linear_f32_i8_int", kF32 | kF16, {6, 6, 6, 2}, {2, 2, 0, 0}},
    {Isa::avx512_vnni, Isa::avx512_vnni, "linear_f32_i8_int", kBf16, integers(16), {16, 3, 3, 0}},
    {Isa::avx512_vbmi2, Isa::amx, "linear_f32_i8_int", kF32, {6, 6, 6, 8}, {3, 3, 2, 8}},
    {Isa::avx512_vbmi2, Isa::avx512_vbmi2, "linear_f32_i8_int", kF16, {6, 6, 6, 8}, {3, 3, 2, 8}},
    {Isa::avx512_vbmi2, Isa::avx512_vbmi2, "linear_f32_i8_int", kBf16, integers(16), {16, 16, 4, 16}},
    {Isa::avx512_bf16, Isa::avx512_bf16, "linear_f32_i8_int", kF16, integers(16), {16, 16, 2, 16}},
    {Isa::avx512_bf16, Isa::avx512_bf16, "linear_f32_i8_int", kBf16, integers(16), {16, 8, 4, 16}},
    {Isa::amx, Isa::amx, "linear_f32_i8_int", kF16, {5, 8, 4, 6}, {6, 3, 2, 4}},
    {Isa::amx, Isa::amx, "linear_f32_i8_int", kBf16, {3, 4, 1, 3}, {4, 4, 3, 4}},
    {Isa::amx, Isa::amx, "linear_f32_i8_int", kOneLimb, integers(8), integers(8)},
    {Isa::amx, Isa::amx, "linear_f32_i8_int", kTwoLimbs, integers(4), integers(4)},

    {Isa::neon_dotprod, Isa::neon_i8mm, "linear_f32_f16_any", kBf16 | kF16, all(4), all(4)},
    {Isa::amx, Isa::amx, "linear_f32_f16_any", kBf16 | kF16, all(1), all(2)},

    {Isa::avx512_bf16, Isa::avx512_bf16, "linear_f32_bf16_any", kBf16, all(6), all(6)},
    {Isa::avx512_bf16, Isa::avx512_bf16, "linear_f32_bf16_any", kF16, all(3), all(3)},
    {Isa::amx, Isa::amx, "linear_f32_bf16_any", kBf16, all(1), all(1)},

    // On a matrix unit: up to two row panels.
    {Isa::amx, Isa::amx, "linear_f32_bf16_any_tiles", kBf16, all(32), all(32)},
    {Isa::amx, Isa::amx, "linear_f32_bf16_any_tiles", kF16, all(16), all(16)},
    {Isa::amx, Isa::amx, "linear_f32_bf16_any_groups", kBf16 | kTwoLimbs, all(32), all(32)},
    {Isa::amx, Isa::amx, "linear_f32_bf16_any_groups", kF16, all(16), all(16)},
    {Isa::amx, Isa::amx, "linear_f32_i8_int_tiles", kOneLimb, integers(32), integers(32)},
    {Isa::amx, Isa::amx, "linear_f32_i8_int_tiles", kTwoLimbs, integers(16), integers(16)},

    // matmul_f32_f32_f32, which takes over, multiplies two blocks together on AVX-512.
    {Isa::portable, Isa::avx2, "linear_f32_f32_any", kFloats, all(16), all(16)},
    {Isa::avx512, Isa::amx, "linear_f32_f32_any", kFloats, all(11), all(11)},
};
static_assert(std::ranges::all_of(kBuiltIn, [](const BuiltIn& line) { return limit_of(line.operation) != kNoLimit; }));

struct Table {
  std::atomic<bool> ready{false};
  Limits limits[2][kWeightKinds][kActivationKinds];  // [sparse]
};

constinit Table tables[kIsas];
constinit std::mutex changing;

// Calls visit(operation, sparse, kind, activations) for every limit.
template <class Visit>
void for_each_limit(const Visit& visit) {
  for (int sparse = 0; sparse < 2; ++sparse) {
    for (int kind = 0; kind < kWeightKinds; ++kind) {
      for (int activations = 0; activations < kActivationKinds; ++activations) {
        for (int operation = 0; operation < kLimits; ++operation) visit(operation, sparse, kind, activations);
      }
    }
  }
}

int16_t built_in_rows(Isa isa, int operation, int sparse, int kind, int activations) {
  for (const BuiltIn& line : kBuiltIn) {
    if (line.first <= isa && isa <= line.last && limit_of(line.operation) == operation &&
        (line.activations >> activations & 1)) {
      return (sparse ? line.sparse : line.dense)[static_cast<size_t>(kind)];
    }
  }
  return 0;
}

void set_built_in(Isa isa, Table& table) {
  for_each_limit([&](int operation, int sparse, int kind, int activations) {
    table.limits[sparse][kind][activations][static_cast<size_t>(operation)] =
        built_in_rows(isa, operation, sparse, kind, activations);
  });
  table.ready.store(true, std::memory_order_release);
}

Table& table_of(Isa isa) {
  Table& table = tables[static_cast<int>(isa)];
  if (!table.ready.load(std::memory_order_acquire)) {
    const std::lock_guard lock(changing);
    if (!table.ready.load(std::memory_order_relaxed)) set_built_in(isa, table);
  }
  return table;
}

template <size_t count>
int index_of(const std::array<std::string_view, count>& names, std::string_view name, const char* what) {
  for (size_t i = 0; i < count; ++i) {
    if (names[i] == name) return static_cast<int>(i);
  }
  throw std::invalid_argument("no " + std::string(what) + " with a row limit: " + std::string(name));
}

// A limit's place in a table, and its rows.
struct Place {
  int operation, sparse, kind, activations;
  int16_t rows;
};

Place place_of(const RowLimit& limit) {
  if (limit.rows < 0 || limit.rows > kMostLimitRows) {
    throw std::invalid_argument("a row limit is 0 to " + std::to_string(kMostLimitRows) + ", not " +
                                std::to_string(limit.rows));
  }
  const std::string_view weights = limit.weights;
  const size_t space = std::min(weights.find(' '), weights.size());
  return {index_of(kLimitedOperations, limit.operation, "operation"),
          index_of(kDensityNames, weights.substr(0, space), "weights"),
          index_of(kWeightNames, weights.substr(std::min(space + 1, weights.size())), "weights"),
          index_of(kActivationNames, limit.activations, "activations"), static_cast<int16_t>(limit.rows)};
}

template <class Rows>
std::vector<RowLimit> listing(const Rows& rows) {
  std::vector<RowLimit> limits;
  for_each_limit([&](int operation, int sparse, int kind, int activations) {
    limits.push_back({std::string(kLimitedOperations[static_cast<size_t>(operation)]),
                      class_name({static_cast<WeightKind>(kind), sparse != 0}),
                      std::string(kActivationNames[static_cast<size_t>(activations)]),
                      rows(operation, sparse, kind, activations)});
  });
  return limits;
}

}  // namespace

const Limits& row_limits(WeightClass weights, ActivationKind activations) {
  return table_of(active_isa()).limits[weights.sparse][static_cast<int>(weights.kind)][static_cast<int>(activations)];
}

std::string class_name(WeightClass weights) {
  return std::string(kDensityNames[weights.sparse]) + " " +
         std::string(kWeightNames[static_cast<size_t>(weights.kind)]);
}

std::vector<RowLimit> built_in_limits(Isa isa) {
  return listing([&](int operation, int sparse, int kind, int activations) {
    return built_in_rows(isa, operation, sparse, kind, activations);
  });
}

std::vector<RowLimit> limits_in_force(Isa isa) {
  const Table& table = table_of(isa);
  return listing([&](int operation, int sparse, int kind, int activations) {
    return table.limits[sparse][kind][activations][static_cast<size_t>(operation)].load();
  });
}

void set_row_limits(Isa isa, std::span<const RowLimit> limits) {
  std::vector<Place> places;
  for (const RowLimit& limit : limits) places.push_back(place_of(limit));
  Table& table = tables[static_cast<int>(isa)];
  const std::lock_guard lock(changing);
  set_built_in(isa, table);
  for (const Place& at : places) {
    table.limits[at.sparse][at.kind][at.activations][static_cast<size_t>(at.operation)] = at.rows;
  }
}

}  // namespace tilepress
