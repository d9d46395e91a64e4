// Bindings of whole decoder layers.
#include <nanobind/stl/string.h>

#include <vector>

#include "bindings/arguments.h"
#include "bindings/bindings.h"
#include "bindings/tensors.h"
#include "dispatch/kv_growing.h"

namespace tilepress {
namespace {

// A decoder layer of packed matrices, kept for as many tokens as come, with the tensors and matrices that it reads.
class PyDecoderLayer {
 public:
  // Norms' weights are plain tensors of `type`. `linears`: q, k, v, o, gate, up, down, each as linear_layer takes it.
  PyDecoderLayer(const std::string& type, int64_t heads, int64_t kv_heads, int64_t head_dim, float epsilon,
                 float scaling, const nb::object& input_norm, const nb::object& post_norm, const nb::list& linears)
      : norms_{input_norm, post_norm},
        linears_(linears),
        layer_{float_type_of(type), heads,     kv_heads,  head_dim,  epsilon,   scaling,   nullptr,  nullptr,
               linear(0),           linear(1), linear(2), linear(3), linear(4), linear(5), linear(6)} {
    layer_.input_norm = weights_of(input_norm);
    layer_.post_norm = weights_of(post_norm);
    constexpr int64_t kMost = int64_t{1} << 30;
    require(heads >= 1 && kv_heads >= 1 && heads % kv_heads == 0 && head_dim >= 2 && head_dim % 2 == 0 &&
                heads <= kMost && head_dim <= kMost,
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
  const uint8_t* weights_of(nb::handle norm) const {
    Tensor weights;
    require(view_values(norm, layer_.type, layer_.hidden(), weights),
            "a norm has " + std::to_string(layer_.hidden()) + " weights of the layer's type, in a plain tensor");
    return static_cast<const uint8_t*>(weights.data);
  }

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

  nb::object norms_[2];
  nb::tuple linears_;  // so that the matrices stay, whatever becomes of the list
  DecoderLayer layer_;
};

// All of a model's decoder layers.
class PyDecoder {
 public:
  explicit PyDecoder(const nb::list& layers) : layers_(layers) {
    require(layers_.size() > 0, "a decoder has layers");
    for (nb::handle one : layers_) {
      const DecoderLayer& layer = nb::cast<const PyDecoderLayer&>(one).layer();
      plain_.push_back(&layer);
      const DecoderLayer& first = *plain_.front();
      require(layer.type == first.type && layer.hidden() == first.hidden() && layer.head_dim == first.head_dim,
              "all layers have one type and one size of hidden states and heads");
    }
  }
  PyDecoder(const PyDecoder&) = delete;

  // What the layers make of a token's hidden states, as a new tensor; None, with nothing done, where these, cosines or
  // sines are no plain tensors that fit.
  // `memory`: keys and values of all layers, [layers, 2, 1, kv_heads, room, head_dim], `length` tokens of them there.
  nb::object decode(nb::handle hidden, nb::handle cosines, nb::handle sines, nb::handle memory, int64_t length,
                    int threads) const {
    const std::vector<TokenCache> places = places_in(memory, length);
    return run(hidden, cosines, sines, [&](const TokenInputs& token, uint8_t* out) {
      decode_token(plain_, token, places, out, check_threads(threads));
    });
  }

  // `caches`: of each layer a packed one of one sequence, which holds `length` tokens.
  nb::object decode_packed(nb::handle hidden, nb::handle cosines, nb::handle sines, const nb::list& caches,
                           int64_t length, int threads) const {
    const nb::tuple held(caches);  // other threads may change the list
    require(held.size() == plain_.size(), "every layer has a cache");
    std::vector<GrowingKv*> packed;
    for (nb::handle one : held) packed.push_back(&check_cache(nb::cast<GrowingKv&>(one), *plain_[packed.size()]));
    return run(hidden, cosines, sines, [&](const TokenInputs& token, uint8_t* out) {
      decode_token_packed(plain_, token, packed, length, out, check_threads(threads));
    });
  }

 private:
  template <class Decode>
  nb::object run(nb::handle hidden, nb::handle cosines, nb::handle sines, const Decode& decode) const {
    const DecoderLayer& first = *plain_.front();
    Tensor x, cosine, sine;
    if (!view_values(hidden, first.type, first.hidden(), x) || !x.ndim ||
        !view_values(cosines, first.type, first.head_dim, cosine) ||
        !view_values(sines, first.type, first.head_dim, sine)) {
      return nb::none();
    }
    const auto bytes = [](const Tensor& tensor) { return static_cast<const uint8_t*>(tensor.data); };
    NewTensor out(x, x.shape[x.ndim - 1]);
    {
      nb::gil_scoped_release release;
      decode({bytes(x), bytes(cosine), bytes(sine)}, out.data());
    }
    return out.to_python();
  }

  std::vector<TokenCache> places_in(nb::handle memory, int64_t length) const {
    Tensor all;
    const DecoderLayer& first = *plain_.front();
    require(view_tensor(memory, all) && all.ndim == 6 && float_type_of(all) == first.type,
            "the cache is a plain tensor of six axes, of the layers' type");
    const int64_t* shape = all.shape;
    require(
        shape[0] == static_cast<int64_t>(plain_.size()) && shape[1] == 2 && shape[2] == 1 && shape[5] == first.head_dim,
        "the cache is another model's, or of several sequences");
    require(length >= 0 && length < shape[4], "there is no room for another token");
    const int64_t bytes = shape[3] * shape[4] * shape[5] * (first.type == FloatType::f32 ? 4 : 2);
    auto* at = static_cast<uint8_t*>(all.data);
    std::vector<TokenCache> places;
    for (const DecoderLayer* layer : plain_) {
      require(layer->kv_heads == shape[3], "the cache is another model's, or of several sequences");
      places.push_back({at, at + bytes, length, shape[4], nullptr});
      at += 2 * bytes;
    }
    return places;
  }

  static GrowingKv& check_cache(GrowingKv& cache, const DecoderLayer& layer) {
    const KvSizes& sizes = cache.sizes();
    require(sizes.batch == 1 && sizes.heads == layer.kv_heads && sizes.channels == layer.head_dim,
            "a packed cache is another model's, or of several sequences");
    return cache;
  }

  nb::tuple layers_;  // so that they stay, whatever becomes of the list
  std::vector<const DecoderLayer*> plain_;
};

// Dicts of a model that nobody is to change while its native twin is used, looked into before every token. By then its
// weights have driven everything else out of the caches, and what takes time is waiting for one dict after the other:
// so all are asked for first.
class PyWatch {
 public:
  // `same`: (dict, key, object), which the dict is to have under that key; `lacking`: (dict, key) without the key;
  // `empty`: dicts.
  PyWatch(const nb::list& same, const nb::list& lacking, const nb::list& empty) {
    for (nb::handle place : same) same_.push_back({dict_of(part(place, 0)), part(place, 1), part(place, 2)});
    for (nb::handle place : lacking) lacking_.push_back({dict_of(part(place, 0)), part(place, 1), nullptr});
    for (nb::handle dict : empty) empty_.push_back(dict_of(dict.ptr()));
    for_all([](PyObject* one) { Py_XINCREF(one); });
  }
  PyWatch(const PyWatch&) = delete;
  ~PyWatch() { clear(); }

  // Python's collector of cycles: dicts lead to the model, and the model to this.
  static int traverse(PyObject* self, visitproc visit, void* arg) {
    Py_VISIT(Py_TYPE(self));
    if (!nb::inst_ready(self)) return 0;
    int stopped = 0;
    nb::inst_ptr<PyWatch>(self)->for_all([&](PyObject* one) {
      if (one && !stopped) stopped = visit(one, arg);
    });
    return stopped;
  }
  static int clear_cycles(PyObject* self) {
    if (nb::inst_ready(self)) nb::inst_ptr<PyWatch>(self)->clear();
    return 0;
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

  template <class Each>
  void for_all(const Each& each) const {
    for (const auto& places : {&same_, &lacking_}) {
      for (const Place& place : *places) each(place.dict), each(place.key), each(place.value);
    }
    for (PyObject* dict : empty_) each(dict);
  }

  // What is let go may run anything, this object's own functions too.
  void clear() {
    std::vector<PyObject*> held;
    for_all([&](PyObject* one) { held.push_back(one); });
    same_.clear(), lacking_.clear(), empty_.clear();
    for (PyObject* one : held) Py_XDECREF(one);
  }

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
  static PyType_Slot cycles[] = {{Py_tp_traverse, reinterpret_cast<void*>(&PyWatch::traverse)},
                                 {Py_tp_clear, reinterpret_cast<void*>(&PyWatch::clear_cycles)},
                                 {0, nullptr}};
  nb::class_<PyWatch>(m, "Watch", nb::type_slots(cycles))
      .def(nb::init<const nb::list&, const nb::list&, const nb::list&>())
      .def("is_same", &PyWatch::is_same)
      .def("is_lacking", &PyWatch::is_lacking)
      .def("is_empty", &PyWatch::is_empty);
  nb::class_<PyDecoderLayer>(m, "DecoderLayer")
      .def(nb::init<const std::string&, int64_t, int64_t, int64_t, float, float, const nb::object&, const nb::object&,
                    const nb::list&>());
  nb::class_<PyDecoder>(m, "Decoder")
      .def(nb::init<const nb::list&>())
      .def("decode", &PyDecoder::decode)
      .def("decode_packed", &PyDecoder::decode_packed);
}

}  // namespace tilepress
