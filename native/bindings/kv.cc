// Bindings of KV caches. A thread that waits for a cache has let go of the GIL: whoever has the cache may want it.
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <tuple>

#include "bindings/arguments.h"
#include "bindings/bindings.h"
#include "bindings/tensors.h"
#include "dispatch/kv_cache.h"
#include "dispatch/kv_sparse.h"

namespace tilepress {
namespace {

using Heads = nb::ndarray<float, nb::ndim<4>, nb::c_contig, nb::device::cpu>;
using ConstHeads = nb::ndarray<const float, nb::ndim<4>, nb::c_contig, nb::device::cpu>;
using ConstFlags = nb::ndarray<const uint8_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Parts = std::vector<std::pair<std::string, nb::bytes>>;

template <class Array>
void require_shape(const Array& array, std::initializer_list<int64_t> shape, const char* name) {
  size_t axis = 0;
  for (int64_t wanted : shape) {
    const auto found = static_cast<int64_t>(array.shape(axis++));
    require(found == wanted, std::string(name) + " have " + std::to_string(found) + " along axis " +
                                 std::to_string(axis - 1) + ", not " + std::to_string(wanted));
  }
}

KvStep check_step(const GrowingKv& cache, const ConstHeads& keys, const ConstHeads& values, const ConstFlags& kept) {
  const KvSizes& sizes = cache.sizes();
  const auto count = static_cast<int64_t>(keys.shape(2));
  require_shape(keys, {sizes.batch, sizes.heads, count, sizes.channels}, "keys");
  require_shape(values, {sizes.batch, sizes.heads, count, sizes.channels}, "values");
  if (kept.size()) require_shape(kept, {sizes.batch, count}, "kept");
  require(count >= 1, "a step has at least one token");
  return {keys.data(), values.data(), kept.size() ? kept.data() : nullptr, count, nullptr, 0, 0.0f, nullptr};
}

void append(GrowingKv& cache, ConstHeads keys, ConstHeads values, ConstFlags kept, int threads) {
  const KvStep step = check_step(cache, keys, values, kept);
  const int workers = check_threads(threads);
  nb::gil_scoped_release release;
  cache.attend(step, workers);
}

void attend(GrowingKv& cache, ConstHeads keys, ConstHeads values, ConstFlags kept, ConstHeads queries, float scaling,
            Heads out, int threads) {
  KvStep step = check_step(cache, keys, values, kept);
  const KvSizes& sizes = cache.sizes();
  const auto heads = static_cast<int64_t>(queries.shape(1));
  const int workers = check_threads(threads);
  require(heads >= 1 && heads % sizes.heads == 0, "heads of keys must divide those of queries");
  require_shape(queries, {sizes.batch, heads, step.count, sizes.channels}, "queries");
  require_shape(out, {sizes.batch, heads, step.count, sizes.channels}, "outputs");
  step.queries = queries.data();
  step.query_heads = heads;
  step.scaling = scaling;
  step.out = out.data();
  nb::gil_scoped_release release;
  cache.attend(step, workers);
}

// The same of torch's tensors, to a new one; None, with nothing done, where one is not of float32, row after row, or
// does not fit: kernels/attention.py then says why, or copies it.
nb::object attend_tensors(GrowingKv& cache, nb::handle keys, nb::handle values, nb::handle queries, float scaling,
                          int threads) {
  const KvSizes& sizes = cache.sizes();
  Tensor k, v, q;
  for (auto [from, to] : {std::pair{keys, &k}, {values, &v}, {queries, &q}}) {
    if (!view_tensor(from, *to) || to->ndim != 4 || float_type_of(*to) != FloatType::f32) return nb::none();
    const bool fits = to->shape[0] == sizes.batch && to->shape[1] >= 1 && to->shape[1] % sizes.heads == 0 &&
                      to->shape[2] >= 1 && to->shape[2] == k.shape[2] && to->shape[3] == sizes.channels;
    if (!fits || (to != &q && to->shape[1] != sizes.heads)) return nb::none();
  }
  const int workers = check_threads(threads);
  NewTensor out(q, sizes.channels);
  const auto floats = [](const Tensor& tensor) { return static_cast<const float*>(tensor.data); };
  const KvStep step = {floats(k), floats(v),  nullptr, k.shape[2],
                       floats(q), q.shape[1], scaling, reinterpret_cast<float*>(out.data())};
  {
    nb::gil_scoped_release release;
    cache.attend(step, workers);
  }
  return out.to_python();
}

Parts save(const GrowingKv& cache) {
  KvParts copies;
  {
    nb::gil_scoped_release release;
    copies = cache.save();
  }
  Parts parts;
  for (const auto& [name, bytes] : copies) parts.emplace_back(name, nb::bytes(bytes.data(), bytes.size()));
  return parts;
}

// What takes no time is asked for with the GIL, which costs more to get back, unless another thread has the cache.
template <class Prefetch>
auto ask(const GrowingKv& cache, const Prefetch& question) {
  if (const GrowingKv::Lock mine = cache.try_lock()) return question();
  nb::gil_scoped_release release;
  return question();
}

KvParts copies_of(const Parts& parts) {
  KvParts copies;
  for (const auto& [name, bytes] : parts) {
    const auto* data = static_cast<const uint8_t*>(bytes.data());
    copies.emplace_back(name, std::vector<uint8_t>(data, data + bytes.size()));
  }
  return copies;
}

// (batch, heads, channels, window, % of keys and of values that are left out)
using Sizes = std::tuple<int64_t, int64_t, int64_t, int64_t, int64_t, int64_t>;

KvSizes sizes_of(const Sizes& given) {
  return std::apply([](auto... sizes) { return KvSizes{sizes...}; }, given);
}

KvShape shape_of(const Sizes& sizes, int mantissa, int high, int64_t initial, int64_t local, int64_t smoothed) {
  return {sizes_of(sizes), mantissa, high, initial, local, smoothed};
}

SparseKvShape shape_of(const Sizes& sizes, const std::string& type) { return {sizes_of(sizes), float_type_of(type)}; }

// A cache's two doors: empty, or with lengths and parts that were saved, after what makes its shape.
template <class Cache, class... Shape>
void bind_kind(nb::module_& m, const char* name) {
  nb::class_<Cache, GrowingKv>(m, name)
      .def("__init__",
           [](Cache* self, const Sizes& sizes, Shape... shape) { new (self) Cache(shape_of(sizes, shape...)); })
      .def_static("load",
                  [](const std::vector<int64_t>& lengths, const Parts& parts, const Sizes& sizes, Shape... shape) {
                    return Cache::load(shape_of(sizes, shape...), lengths, copies_of(parts));
                  });
}

}  // namespace

void bind_kv_cache(nb::module_& m) {
  using namespace nb::literals;
  nb::class_<GrowingKv>(m, "GrowingKv")
      .def("append", &append, no_convert("keys"), no_convert("values"), no_convert("kept"), "threads"_a)
      .def("attend", &attend, no_convert("keys"), no_convert("values"), no_convert("kept"), no_convert("queries"),
           "scaling"_a, no_convert("out"), "threads"_a)
      .def("attend_tensors", &attend_tensors)
      .def("crop", &GrowingKv::crop, "lengths"_a, nb::call_guard<nb::gil_scoped_release>())
      .def("select", &GrowingKv::select, "sequences"_a, nb::call_guard<nb::gil_scoped_release>())
      .def("save", &save)
      .def_prop_ro("lengths", [](const GrowingKv& cache) { return ask(cache, [&] { return cache.lengths(); }); })
      .def_prop_ro("allocated", [](const GrowingKv& cache) { return ask(cache, [&] { return cache.allocated(); }); });
  bind_kind<KvCache, int, int, int64_t, int64_t, int64_t>(m, "KvCache");
  bind_kind<SparseKvCache, std::string>(m, "SparseKvCache");
}

}  // namespace tilepress
