// Torch tensors, read and made through DLPack's C exchange API, which torch.Tensor offers. No Python code runs: with
// caches full of weights, asking a tensor for its type, shape and address in Python takes a tenth of the time of a
// small layer.
#pragma once

#include "bindings/arguments.h"

namespace tilepress {

using Tensor = nb::dlpack::dltensor;

// Sets torch.Tensor as the type to exchange; false if it lacks the API, as in old versions.
bool use_tensor_type(nb::handle type);

// True for a plain torch.Tensor (no subclass) on the CPU, of float32, bf16 or fp16, contiguous, and not a lazily
// negated view. `view` then points to its memory, and is valid as long as the tensor.
bool view_tensor(nb::handle tensor, Tensor& view);

// The same for a tensor of `count` values of `type`.
bool view_values(nb::handle tensor, FloatType type, int64_t count, Tensor& view);

// Number of values.
int64_t count_of(const Tensor& tensor);

FloatType float_type_of(const Tensor& tensor);

// A new tensor of the type and shape of `like`, except that its last dimension is `last`. Owns its memory until
// to_python(). `like` comes from view_tensor.
class NewTensor {
 public:
  NewTensor(const Tensor& like, int64_t last);
  ~NewTensor();
  NewTensor(const NewTensor&) = delete;
  NewTensor& operator=(const NewTensor&) = delete;

  uint8_t* data() const;
  nb::object to_python();  // hands the memory over

 private:
  struct Managed;
  Managed* managed_ = nullptr;
  friend struct Exchange;
};

}  // namespace tilepress
