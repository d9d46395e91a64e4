// Python bindings of KV stores. A thread waits for a store without the GIL, since the thread that holds the store may
// need it.
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <cmath>
#include <tuple>

#include "bindings/arguments.h"
#include "bindings/bindings.h"
#include "bindings/tensors.h"
#include "dispatch/kv_bfp_store.h"
#include "dispatch/kv_sequence.h"
#include "dispatch/kv_sparse_store.h"

namespace tilepress {
namespace {

using Heads = nb::ndarray<float, nb::ndim<4>, nb::c_contig, nb::device::cpu>;
using ConstHeads = nb::ndarray<const float, nb::ndim<4>, nb::c_contig, nb::device::cpu>;
using ConstFloats = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using ConstFlags = nb::ndarray<const uint8_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Arrays = std::vector<std::pair<std::string, nb::bytes>>;

template <class Array>
void require_shape(const Array& array, std::initializer_list<int64_t> shape, const char* name) {
  size_t axis = 0;
  for (int64_t expected : shape) {
    const auto extent = static_cast<int64_t>(array.shape(axis++));
    require(extent == expected, std::string(name) + " have " + std::to_string(extent) + " along axis " +
                                    std::to_string(axis - 1) + ", not " + std::to_string(expected));
  }
}

KvStep check_step(const KvStore& store, const ConstHeads& keys, const ConstHeads& values, const ConstFlags& stored) {
  const KvSizes& sizes = store.sizes();
  const auto count = static_cast<int64_t>(keys.shape(2));
  require_shape(keys, {sizes.batch, sizes.heads, count, sizes.channels}, "keys");
  require_shape(values, {sizes.batch, sizes.heads, count, sizes.channels}, "values");
  if (stored.size()) require_shape(stored, {sizes.batch, count}, "kept");
  require(count >= 1, "a step has at least one token");
  return {keys.data(), values.data(), stored.size() ? stored.data() : nullptr, count, nullptr, 0, 0.0f, nullptr};
}

void append(KvStore& store, ConstHeads keys, ConstHeads values, ConstFlags stored, int threads) {
  const KvStep step = check_step(store, keys, values, stored);
  const int workers = check_threads(threads);
  nb::gil_scoped_release release;
  store.attend(step, workers);
}

// `softcap`: 0 for none; `sinks`: empty for none.
void attend(KvStore& store, ConstHeads keys, ConstHeads values, ConstFlags stored, ConstHeads queries, float scaling,
            float softcap, ConstFloats sinks, Heads out, int threads) {
  KvStep step = check_step(store, keys, values, stored);
  const KvSizes& sizes = store.sizes();
  const auto heads = static_cast<int64_t>(queries.shape(1));
  const int workers = check_threads(threads);
  require(heads >= 1 && heads % sizes.heads == 0, "heads of keys must divide those of queries");
  require_shape(queries, {sizes.batch, heads, step.count, sizes.channels}, "queries");
  require_shape(out, {sizes.batch, heads, step.count, sizes.channels}, "outputs");
  step.queries = queries.data();
  step.query_heads = heads;
  step.scaling = scaling;
  step.out = out.data();
  step.softcap = softcap;
  require(std::isfinite(softcap) && softcap >= 0, "a soft cap is a positive number");
  if (sinks.size()) require_shape(sinks, {heads}, "sinks");
  step.sinks = sinks.size() ? sinks.data() : nullptr;
  nb::gil_scoped_release release;
  store.attend(step, workers);
}

// The same for torch tensors, with a new tensor as the result. None, with nothing done, if one is not contiguous
// float32 or does not fit: kernels/attention.py then converts it, or says what is wrong.
nb::object attend_tensors(KvStore& store, nb::handle keys, nb::handle values, nb::handle queries, float scaling,
                          int threads) {
  const KvSizes& sizes = store.sizes();
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
    store.attend(step, workers);
  }
  return out.to_python();
}

Arrays save(const KvStore& store) {
  KvArrays copies;
  {
    nb::gil_scoped_release release;
    copies = store.save();
  }
  Arrays arrays;
  for (const auto& [name, bytes] : copies) arrays.emplace_back(name, nb::bytes(bytes.data(), bytes.size()));
  return arrays;
}

// Runs a quick query. Keeps the GIL, which costs more to reacquire, unless another thread holds the store.
template <class Query>
auto quickly(const KvStore& store, const Query& query) {
  if (const KvStore::Lock mine = store.try_lock()) return query();
  nb::gil_scoped_release release;
  return query();
}

KvArrays copies_of(const Arrays& arrays) {
  KvArrays copies;
  for (const auto& [name, bytes] : arrays) {
    const auto* data = static_cast<const uint8_t*>(bytes.data());
    copies.emplace_back(name, std::vector<uint8_t>(data, data + bytes.size()));
  }
  return copies;
}

// (batch, heads, channels, window, % of keys and of values that are pruned)
using Sizes = std::tuple<int64_t, int64_t, int64_t, int64_t, int64_t, int64_t>;

KvSizes sizes_of(const Sizes& given) {
  return std::apply([](auto... sizes) { return KvSizes{sizes...}; }, given);
}

BfpKvConfig config_of(const Sizes& sizes, int mantissa, int high, int64_t initial, int64_t local, bool nearest,
                      int64_t smoothed, bool rotated) {
  return {sizes_of(sizes), mantissa, high, initial, local, nearest, smoothed, rotated};
}

SparseKvConfig config_of(const Sizes& sizes, const std::string& type) { return {sizes_of(sizes), float_type_of(type)}; }

// Constructors of one kind of store: empty, or from saved lengths and arrays.
template <class Store, class... Config>
void bind_kind(nb::module_& m, const char* name) {
  nb::class_<Store, KvStore>(m, name)
      .def("__init__",
           [](Store* self, const Sizes& sizes, Config... config) { new (self) Store(config_of(sizes, config...)); })
      .def_static("load",
                  [](const std::vector<int64_t>& lengths, const Arrays& arrays, const Sizes& sizes, Config... config) {
                    return Store::load(config_of(sizes, config...), lengths, copies_of(arrays));
                  });
}

}  // namespace

void bind_kv_stores(nb::module_& m) {
  using namespace nb::literals;
  nb::class_<KvStore>(m, "KvStore")
      .def("append", &append, no_convert("keys"), no_convert("values"), no_convert("kept"), "threads"_a)
      .def("attend", &attend, no_convert("keys"), no_convert("values"), no_convert("kept"), no_convert("queries"),
           "scaling"_a, "softcap"_a, no_convert("sinks"), no_convert("out"), "threads"_a)
      .def("attend_tensors", &attend_tensors)
      .def("crop", &KvStore::crop, "lengths"_a, nb::call_guard<nb::gil_scoped_release>())
      .def("select", &KvStore::select, "sequences"_a, nb::call_guard<nb::gil_scoped_release>())
      .def("save", &save)
      .def_prop_ro("has_blocks", &KvStore::has_blocks)
      .def_prop_ro("lengths", [](const KvStore& store) { return quickly(store, [&] { return store.lengths(); }); })
      .def_prop_ro("allocated", [](const KvStore& store) { return quickly(store, [&] { return store.allocated(); }); });
  nb::class_<KvSequenceBlock>(m, "KvSequenceBlock");
  nb::class_<KvSequence>(m, "KvSequence")
      .def(nb::init<const std::vector<const KvStore*>&, const std::vector<const KvSequenceBlock*>&>(), "models"_a,
           "blocks"_a)
      .def(nb::init<const std::vector<const KvStore*>&>(), "stores"_a)
      .def("block", &KvSequence::block, "index"_a)
      .def("fork", &KvSequence::fork, nb::call_guard<nb::gil_scoped_release>())
      .def("crop", &KvSequence::crop, "length"_a, nb::call_guard<nb::gil_scoped_release>())
      .def("layer", &KvSequence::layer, "index"_a, nb::rv_policy::reference_internal)
      .def_prop_ro("length", &KvSequence::length)
      .def_prop_ro("spoiled", &KvSequence::is_spoiled)
      .def_prop_ro("allocated", &KvSequence::allocated);
  m.attr("BLOCK_TOKENS") = KvStore::kBlockTokens;
  bind_kind<BfpKvStore, int, int, int64_t, int64_t, bool, int64_t, bool>(m, "BfpKvStore");
  bind_kind<SparseKvStore, std::string>(m, "SparseKvStore");
}

}  // namespace tilepress
