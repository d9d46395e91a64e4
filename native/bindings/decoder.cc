// Bindings of whole decoder layers.
#include <nanobind/stl/string.h>

#include <vector>

#include "bindings/arguments.h"
#include "bindings/bindings.h"
#include "bindings/tensors.h"
#include "dispatch/kv_store.h"

namespace tilepress {
namespace {

// A decoder layer of packed matrices. Holds references to the tensors and matrices that it reads.
class PyDecoderLayer {
 public:
  // Norms' weights are plain tensors of `type`. `linears`: q, k, v, o, gate, up, down, as linear_layer takes them.
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
  nb::tuple linears_;  // a copy: the list may change
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

  // Runs all layers on a token's hidden states; a new tensor. None, with nothing done, if hidden states, cosines or
  // sines are not plain tensors that fit. `memory`: keys and values of all layers, [layers, 2, 1, kv_heads, room,
  // head_dim], with `length` tokens.
  nb::object decode(nb::handle hidden, nb::handle cosines, nb::handle sines, nb::handle memory, int64_t length,
                    int threads) const {
    const std::vector<TokenCache> caches = caches_in(memory, length);
    return run(hidden, cosines, sines, [&](const TokenInputs& token, uint8_t* out) {
      decode_token(plain_, token, caches, out, check_threads(threads));
    });
  }

  // `stores`: one packed store per layer, of one sequence with `length` tokens.
  nb::object decode_packed(nb::handle hidden, nb::handle cosines, nb::handle sines, const nb::list& stores,
                           int64_t length, int threads) const {
    const nb::tuple held(stores);  // a copy: other threads may change the list
    require(held.size() == plain_.size(), "every layer has a cache");
    std::vector<KvStore*> packed;
    for (nb::handle one : held) packed.push_back(&check_store(nb::cast<KvStore&>(one), *plain_[packed.size()]));
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

  std::vector<TokenCache> caches_in(nb::handle memory, int64_t length) const {
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
    std::vector<TokenCache> caches;
    for (const DecoderLayer* layer : plain_) {
      require(layer->kv_heads == shape[3], "the cache is another model's, or of several sequences");
      caches.push_back({at, at + bytes, length, shape[4], nullptr});
      at += 2 * bytes;
    }
    return caches;
  }

  static KvStore& check_store(KvStore& store, const DecoderLayer& layer) {
    const KvSizes& sizes = store.sizes();
    require(sizes.batch == 1 && sizes.heads == layer.kv_heads && sizes.channels == layer.head_dim,
            "a packed cache is another model's, or of several sequences");
    return store;
  }

  nb::tuple layers_;  // a copy: the list may change
  std::vector<const DecoderLayer*> plain_;
};

// Dicts of a model that must not change while its native decoder is used; checked before every token. By then the
// model's weights have evicted the dicts from the CPU's caches: all are prefetched first, then read.
class PyWatch {
 public:
  // `same`: (dict, key, object) that the dict must have under that key; `lacking`: (dict, key) that it must not have;
  // `empty`: dicts that must be empty.
  PyWatch(const nb::list& same, const nb::list& lacking, const nb::list& empty) {
    for (nb::handle entry : same) same_.push_back({dict_of(part(entry, 0)), part(entry, 1), part(entry, 2)});
    for (nb::handle entry : lacking) lacking_.push_back({dict_of(part(entry, 0)), part(entry, 1), nullptr});
    for (nb::handle dict : empty) empty_.push_back(dict_of(dict.ptr()));
    for_all([](PyObject* one) { Py_XINCREF(one); });
  }
  PyWatch(const PyWatch&) = delete;
  ~PyWatch() { clear(); }

  // For Python's garbage collector: dicts lead to the model, and the model to this.
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
  struct Entry {
    PyObject *dict, *key, *value;  // value null: the key must be missing
  };

  template <class Each>
  void for_all(const Each& each) const {
    for (const auto& entries : {&same_, &lacking_}) {
      for (const Entry& entry : *entries) each(entry.dict), each(entry.key), each(entry.value);
    }
    for (PyObject* dict : empty_) each(dict);
  }

  // Releasing an object may run any code, this object's own functions too: the members are empty by then.
  void clear() {
    std::vector<PyObject*> held;
    for_all([&](PyObject* one) { held.push_back(one); });
    same_.clear(), lacking_.clear(), empty_.clear();
    for (PyObject* one : held) Py_XDECREF(one);
  }

  static PyObject* part(nb::handle entry, int index) {
    require(PyTuple_Check(entry.ptr()) && index < PyTuple_GET_SIZE(entry.ptr()), "a place is a dict, a key, an object");
    return PyTuple_GET_ITEM(entry.ptr(), index);
  }

  static PyObject* dict_of(PyObject* object) {
    require(PyDict_Check(object), "only dicts are watched");
    return object;
  }

  static bool all_hold(const std::vector<Entry>& entries) {
    for (const Entry& entry : entries) __builtin_prefetch(entry.dict);
    for (const Entry& entry : entries) {
      const auto* keys = reinterpret_cast<const char*>(reinterpret_cast<PyDictObject*>(entry.dict)->ma_keys);
      for (int line = 0; line < 6; ++line) __builtin_prefetch(keys + line * kVectorBytes);
    }
    for (const Entry& entry : entries) {
      PyObject* value = PyDict_GetItemWithError(entry.dict, entry.key);
      if (!value && PyErr_Occurred()) throw nb::python_error();
      if (value != entry.value) return false;
    }
    return true;
  }

  std::vector<Entry> same_, lacking_;
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
