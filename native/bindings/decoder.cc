// Python's door to whole decoder layers.
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <tuple>
#include <vector>

#include "bindings/arguments.h"
#include "bindings/doors.h"
#include "dispatch/kv_growing.h"

namespace tilepress {
namespace {

// A decoder layer of packed matrices, kept for as many tokens as come. Addresses rather than arrays; the only caller is
// nn/decoding.py, which holds what they point to.
class PyDecoderLayer {
 public:
  // `linears`: q, k, v, o, gate, up, down, each as linear_layer takes it.
  PyDecoderLayer(const std::string& type, int64_t heads, int64_t kv_heads, int64_t head_dim, float epsilon,
                 float scaling, uintptr_t input_norm, uintptr_t post_norm, const nb::list& linears)
      : linears_(linears),
        layer_{real_of(type),
               heads,
               kv_heads,
               head_dim,
               epsilon,
               scaling,
               as<const uint8_t>(input_norm),
               as<const uint8_t>(post_norm),
               linear(0),
               linear(1),
               linear(2),
               linear(3),
               linear(4),
               linear(5),
               linear(6)} {
    require(input_norm && post_norm, "norms must have weights");
    require(heads >= 1 && kv_heads >= 1 && heads % kv_heads == 0 && head_dim >= 2 && head_dim % 2 == 0,
            "heads of keys must divide those of queries, and heads have an even size");
    const int64_t hidden = layer_.hidden(), inner = layer_.inner();
    require_shape(layer_.q, heads * head_dim, hidden);
    require_shape(layer_.k, kv_heads * head_dim, hidden);
    require_shape(layer_.v, kv_heads * head_dim, hidden);
    require_shape(layer_.o, hidden, heads * head_dim);
    require_shape(layer_.gate, inner, hidden);
    require_shape(layer_.up, inner, hidden);
    require_shape(layer_.down, hidden, inner);
  }
  PyDecoderLayer(const PyDecoderLayer&) = delete;

  const DecoderLayer& layer() const { return layer_; }

 private:
  LinearLayer linear(size_t index) const {
    require(linears_.size() == 7, "a layer has seven matrices");
    return linear_layer(linears_[index]);
  }

  static void require_shape(const LinearLayer& layer, int64_t rows, int64_t cols) {
    const MatrixShape& shape = layer.weights.shape;
    require(shape.rows == rows && shape.cols == cols, "a matrix is " + std::to_string(shape.rows) + " by " +
                                                          std::to_string(shape.cols) + ", not " + std::to_string(rows) +
                                                          " by " + std::to_string(cols));
  }

  nb::list linears_;  // so that the matrices stay
  DecoderLayer layer_;
};

// All of a model's decoder layers.
class PyDecoder {
 public:
  explicit PyDecoder(const nb::list& layers) : layers_(layers) {
    require(layers.size() > 0, "a decoder has layers");
    for (nb::handle one : layers) {
      const DecoderLayer& layer = nb::cast<const PyDecoderLayer&>(one).layer();
      plain_.push_back(&layer);
      const DecoderLayer& first = *plain_.front();
      require(layer.type == first.type && layer.hidden() == first.hidden() && layer.head_dim == first.head_dim,
              "all layers have one type and one size of hidden states and heads");
    }
  }
  PyDecoder(const PyDecoder&) = delete;

  // `caches`: of each layer (address of keys, of values), with room for `room` tokens and `length` of them there.
  void decode(uintptr_t hidden, uintptr_t cosines, uintptr_t sines,
              const std::vector<std::tuple<uintptr_t, uintptr_t>>& caches, int64_t length, int64_t room, uintptr_t out,
              int threads) const {
    require(hidden && cosines && sines && out, "all must have memory");
    require(caches.size() == plain_.size(), "every layer has a cache");
    require(threads >= 1, "at least one thread is needed");
    require(length >= 0 && length < room, "there is no room for another token");
    std::vector<TokenCache> places;
    for (const auto& [keys, values] : caches) {
      require(keys && values, "all must have memory");
      places.push_back({as<uint8_t>(keys), as<uint8_t>(values), length, room, nullptr});
    }
    nb::gil_scoped_release release;
    decode_token(plain_, as<const uint8_t>(hidden), as<const uint8_t>(cosines), as<const uint8_t>(sines), places,
                 as<uint8_t>(out), threads);
  }

  // `caches`: of each layer a packed one of one sequence.
  void decode_packed(uintptr_t hidden, uintptr_t cosines, uintptr_t sines, const nb::list& caches, uintptr_t out,
                     int threads) const {
    require(hidden && cosines && sines && out, "all must have memory");
    require(caches.size() == plain_.size(), "every layer has a cache");
    require(threads >= 1, "at least one thread is needed");
    std::vector<TokenCache> places;
    for (nb::handle one : caches) {
      auto& cache = nb::cast<GrowingKv&>(one);
      const DecoderLayer& layer = *plain_[places.size()];
      const KvSizes& sizes = cache.sizes();
      require(sizes.batch == 1 && sizes.heads == layer.kv_heads && sizes.channels == layer.head_dim,
              "a packed cache is another model's, or of several sequences");
      places.push_back({nullptr, nullptr, 0, 0, &cache});
    }
    nb::gil_scoped_release release;
    decode_token(plain_, as<const uint8_t>(hidden), as<const uint8_t>(cosines), as<const uint8_t>(sines), places,
                 as<uint8_t>(out), threads);
  }

 private:
  nb::list layers_;  // so that they stay
  std::vector<const DecoderLayer*> plain_;
};

// Dicts of a model that nobody is to change while its native twin is used, looked into before every token. By then its
// weights have driven everything else out of the caches, and what takes time is waiting for one dict after the other:
// so all are asked for first. The caller, nn/decoding.py, holds the lists and what is in them.
class PyWatch {
 public:
  // `same`: (dict, key, object), which the dict is to have under that key; `lacking`: (dict, key) without the key;
  // `empty`: dicts.
  PyWatch(const nb::list& same, const nb::list& lacking, const nb::list& empty) {
    for (nb::handle place : same) same_.push_back({dict_of(part(place, 0)), part(place, 1), part(place, 2)});
    for (nb::handle place : lacking) lacking_.push_back({dict_of(part(place, 0)), part(place, 1), nullptr});
    for (nb::handle dict : empty) empty_.push_back(dict_of(dict.ptr()));
  }

  bool is_same() const { return all_hold(same_); }
  bool is_lacking() const { return all_hold(lacking_); }
  bool is_empty() const {
    for (PyObject* dict : empty_) __builtin_prefetch(dict);
    for (PyObject* dict : empty_) {
      if (PyDict_Size(dict) != 0) return false;
    }
    return true;
  }

 private:
  struct Place {
    PyObject *dict, *key, *value;  // value: null where there is to be none
  };

  static PyObject* part(nb::handle place, int index) {
    require(PyTuple_Check(place.ptr()) && index < PyTuple_GET_SIZE(place.ptr()), "a place is a dict, a key, an object");
    return PyTuple_GET_ITEM(place.ptr(), index);
  }

  static PyObject* dict_of(PyObject* found) {
    require(PyDict_Check(found), "only dicts are watched");
    return found;
  }

  static bool all_hold(const std::vector<Place>& places) {
    for (const Place& place : places) __builtin_prefetch(place.dict);
    for (const Place& place : places) {
      const auto* keys = reinterpret_cast<const char*>(reinterpret_cast<PyDictObject*>(place.dict)->ma_keys);
      for (int line = 0; line < 6; ++line) __builtin_prefetch(keys + line * kVectorBytes);
    }
    for (const Place& place : places) {
      PyObject* found = PyDict_GetItemWithError(place.dict, place.key);
      if (!found && PyErr_Occurred()) throw nb::python_error();
      if (found != place.value) return false;
    }
    return true;
  }

  std::vector<Place> same_, lacking_;
  std::vector<PyObject*> empty_;
};

}  // namespace

void bind_decoder(nb::module_& m) {
  nb::class_<PyWatch>(m, "Watch")
      .def(nb::init<const nb::list&, const nb::list&, const nb::list&>())
      .def("is_same", &PyWatch::is_same)
      .def("is_lacking", &PyWatch::is_lacking)
      .def("is_empty", &PyWatch::is_empty);
  nb::class_<PyDecoderLayer>(m, "DecoderLayer")
      .def(nb::init<const std::string&, int64_t, int64_t, int64_t, float, float, uintptr_t, uintptr_t,
                    const nb::list&>());
  nb::class_<PyDecoder>(m, "Decoder")
      .def(nb::init<const nb::list&>())
      .def("decode", &PyDecoder::decode)
      .def("decode_packed", &PyDecoder::decode_packed);
}

}  // namespace tilepress
