// Torch's tensors read and made without a word of Python, by the functions that its type hands out for that: DLPack's
// C exchange API. A layer is called so often, and with caches so full of weights, that asking a tensor for its type,
// shape and address in Python takes a tenth of a small layer's time.
#pragma once

#include "bindings/arguments.h"

namespace tilepress {

using Tensor = nb::dlpack::dltensor;

// Takes torch.Tensor; false where it hands nothing out, as those of old versions.
bool use_tensor_type(nb::handle type);

// Whether it is a plain tensor, no subclass, of floats on the CPU, row after row, that are what its memory says: not
// those of a view that negates them. `to` is then what it holds, for as long as it lives.
bool view_tensor(nb::handle tensor, Tensor& to);

// The same of so many values of a type.
bool view_values(nb::handle tensor, FloatType type, int64_t count, Tensor& to);

int64_t count_of(const Tensor& tensor);  // values

FloatType float_type_of(const Tensor& tensor);

// One as `like`, in memory of its own, but for its last extent. `like` has been viewed, so there is a type.
class NewTensor {
 public:
  NewTensor(const Tensor& like, int64_t last);
  ~NewTensor();
  NewTensor(const NewTensor&) = delete;
  NewTensor& operator=(const NewTensor&) = delete;

  uint8_t* data() const;
  nb::object give();  // to Python; nothing is left here

 private:
  struct Managed;
  Managed* managed_ = nullptr;
  friend struct Exchange;
};

}  // namespace tilepress
