// Python's door to KV caches.
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include "bindings/arguments.h"
#include "bindings/doors.h"
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

template <class Cache>
KvStep check_step(const Cache& cache, const ConstHeads& keys, const ConstHeads& values, const ConstFlags& kept) {
  const auto& shape = cache.shape();
  const auto count = static_cast<int64_t>(keys.shape(2));
  require_shape(keys, {shape.batch, shape.heads, count, shape.channels}, "keys");
  require_shape(values, {shape.batch, shape.heads, count, shape.channels}, "values");
  if (kept.size()) require_shape(kept, {shape.batch, count}, "kept");
  require(count >= 1, "a step has at least one token");
  return {keys.data(), values.data(), kept.size() ? kept.data() : nullptr, count, nullptr, 0, 0.0f, nullptr};
}

template <class Cache>
void append(Cache& cache, ConstHeads keys, ConstHeads values, ConstFlags kept, int threads) {
  const KvStep step = check_step(cache, keys, values, kept);
  require(threads >= 1, "at least one thread is needed");
  nb::gil_scoped_release release;
  cache.attend(step, threads);
}

template <class Cache>
void attend(Cache& cache, ConstHeads keys, ConstHeads values, ConstFlags kept, ConstHeads queries, float scaling,
            Heads out, int threads) {
  KvStep step = check_step(cache, keys, values, kept);
  const auto& shape = cache.shape();
  const auto heads = static_cast<int64_t>(queries.shape(1));
  require(threads >= 1, "at least one thread is needed");
  require(heads >= 1 && heads % shape.heads == 0, "heads of keys must divide those of queries");
  require_shape(queries, {shape.batch, heads, step.count, shape.channels}, "queries");
  require_shape(out, {shape.batch, heads, step.count, shape.channels}, "outputs");
  step.queries = queries.data();
  step.query_heads = heads;
  step.scaling = scaling;
  step.out = out.data();
  nb::gil_scoped_release release;
  cache.attend(step, threads);
}

template <class Cache>
std::vector<int64_t> lengths(const Cache& cache) {
  std::vector<int64_t> all;
  for (int64_t i = 0; i < cache.shape().batch; ++i) all.push_back(cache.length(i));
  return all;
}

template <class Cache>
Parts save(const Cache& cache) {
  Parts parts;
  for (const auto& [name, bytes] : cache.save()) parts.emplace_back(name, nb::bytes(bytes.data(), bytes.size()));
  return parts;
}

KvShape make_shape(int64_t batch, int64_t heads, int64_t channels, int mantissa, int high, int64_t initial,
                   int64_t local, int64_t window, int64_t smoothed, bool thin) {
  return {batch, heads, channels, mantissa, high, initial, local, window, smoothed, thin};
}

std::vector<std::pair<std::string, std::vector<uint8_t>>> copies_of(const Parts& parts) {
  std::vector<std::pair<std::string, std::vector<uint8_t>>> copies;
  for (const auto& [name, bytes] : parts) {
    const auto* data = static_cast<const uint8_t*>(bytes.data());
    copies.emplace_back(name, std::vector<uint8_t>(data, data + bytes.size()));
  }
  return copies;
}

std::unique_ptr<KvCache> load(int64_t batch, int64_t heads, int64_t channels, int mantissa, int high, int64_t initial,
                              int64_t local, int64_t window, int64_t smoothed, bool thin,
                              const std::vector<int64_t>& lengths, const Parts& parts) {
  return KvCache::load(make_shape(batch, heads, channels, mantissa, high, initial, local, window, smoothed, thin),
                       lengths, copies_of(parts));
}

SparseKvShape make_sparse_shape(int64_t batch, int64_t heads, int64_t channels, const std::string& type,
                                int64_t key_drop, int64_t value_drop, int64_t window) {
  return {batch, heads, channels, real_of(type), key_drop, value_drop, window};
}

std::unique_ptr<SparseKvCache> load_sparse(int64_t batch, int64_t heads, int64_t channels, const std::string& type,
                                           int64_t key_drop, int64_t value_drop, int64_t window,
                                           const std::vector<int64_t>& lengths, const Parts& parts) {
  return SparseKvCache::load(make_sparse_shape(batch, heads, channels, type, key_drop, value_drop, window), lengths,
                             copies_of(parts));
}

// What both kinds of caches do.
template <class Cache>
void bind_growth(nb::class_<Cache>& door) {
  using namespace nb::literals;
  door.def("append", &append<Cache>, as_it_is("keys"), as_it_is("values"), as_it_is("kept"), "threads"_a)
      .def("attend", &attend<Cache>, as_it_is("keys"), as_it_is("values"), as_it_is("kept"), as_it_is("queries"),
           "scaling"_a, as_it_is("out"), "threads"_a)
      .def("crop", &Cache::crop, "lengths"_a)
      .def("select", &Cache::select, "sequences"_a)
      .def("save", &save<Cache>)
      .def_prop_ro("lengths", &lengths<Cache>)
      .def_prop_ro("allocated", &Cache::allocated);
}

}  // namespace

void bind_kv_cache(nb::module_& m) {
  using namespace nb::literals;
  auto packed = nb::class_<KvCache>(m, "KvCache");
  packed
      .def(
          "__init__",
          [](KvCache* self, int64_t batch, int64_t heads, int64_t channels, int mantissa, int high, int64_t initial,
             int64_t local, int64_t window, int64_t smoothed, bool thin) {
            new (self)
                KvCache(make_shape(batch, heads, channels, mantissa, high, initial, local, window, smoothed, thin));
          },
          "batch"_a, "heads"_a, "channels"_a, "mantissa"_a, "high"_a, "initial"_a, "local"_a, "window"_a, "smoothed"_a,
          "thin"_a)
      .def_static("load", &load, "batch"_a, "heads"_a, "channels"_a, "mantissa"_a, "high"_a, "initial"_a, "local"_a,
                  "window"_a, "smoothed"_a, "thin"_a, "lengths"_a, "parts"_a);
  bind_growth(packed);
  auto sparse = nb::class_<SparseKvCache>(m, "SparseKvCache");
  sparse
      .def(
          "__init__",
          [](SparseKvCache* self, int64_t batch, int64_t heads, int64_t channels, const std::string& type,
             int64_t key_drop, int64_t value_drop, int64_t window) {
            new (self) SparseKvCache(make_sparse_shape(batch, heads, channels, type, key_drop, value_drop, window));
          },
          "batch"_a, "heads"_a, "channels"_a, "type"_a, "key_drop"_a, "value_drop"_a, "window"_a)
      .def_static("load", &load_sparse, "batch"_a, "heads"_a, "channels"_a, "type"_a, "key_drop"_a, "value_drop"_a,
                  "window"_a, "lengths"_a, "parts"_a);
  bind_growth(sparse);
}

}  // namespace tilepress
