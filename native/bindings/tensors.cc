#include "bindings/tensors.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <functional>
#include <new>
#include <numeric>
#include <span>

#include "dispatch/memory.h"

namespace tilepress {

// DLManagedTensorVersioned and DLPackExchangeAPI of DLPack 1.3.
struct NewTensor::Managed {
  uint32_t major, minor;
  void* context;
  void (*deleter)(Managed*);
  uint64_t flags;
  Tensor tensor;
};

struct Exchange {
  using Managed = NewTensor::Managed;

  uint32_t major, minor;
  void* previous;
  void *allocate, *from_python;
  int (*to_python)(Managed*, void** object);
  int (*view_of)(void* object, Tensor* out);
};

namespace {

constexpr int32_t kCpu = 1;

const Exchange* exchange = nullptr;
PyTypeObject* tensor_type = nullptr;
PyObject* is_negated = nullptr;  // torch.Tensor.is_neg: DLPack does not say

// Recycles memory of results: two spare blocks for each power of two up to 128 MiB. With caches full of weights, malloc
// takes microseconds; and memory that the system has just given takes longer to touch than a layer to compute.
class BlockCache {
 public:
  void* allocate(size_t bytes) {
    const size_t size = std::bit_ceil(bytes);
    for (std::atomic<void*>& spare : spares(size)) {
      if (void* block = spare.exchange(nullptr, std::memory_order_acquire)) return block;
    }
    return allocate_lines(kept(size) ? size : bytes, kLine);
  }

  void release(void* memory, size_t bytes) {
    const size_t size = std::bit_ceil(bytes);
    for (std::atomic<void*>& spare : spares(size)) {
      if (memory) memory = spare.exchange(memory, std::memory_order_acq_rel);
    }
    if (memory) free_lines(memory, kept(size) ? size : bytes, kLine);
  }

 private:
  static constexpr size_t kLargest = size_t{128} << 20, kLine = 64;

  static bool kept(size_t size) { return size <= kLargest; }

  using Spares = std::atomic<void*>[2];
  std::span<std::atomic<void*>> spares(size_t size) {
    if (!kept(size)) return {};
    return spares_[std::countr_zero(size)];
  }

  Spares spares_[std::countr_zero(kLargest) + 1] = {};
};

constinit BlockCache block_cache;

bool is_of(const Tensor& tensor, nb::dlpack::dtype_code code, int bits) {
  return tensor.dtype == nb::dlpack::dtype{static_cast<uint8_t>(code), static_cast<uint8_t>(bits), 1};
}

bool is_float(const Tensor& tensor) {
  using Code = nb::dlpack::dtype_code;
  return is_of(tensor, Code::Float, 32) || is_of(tensor, Code::Bfloat, 16) || is_of(tensor, Code::Float, 16);
}

bool is_negative_view(nb::handle tensor) {
  const nb::object result = nb::steal(PyObject_CallOneArg(is_negated, tensor.ptr()));
  if (!result.is_valid()) throw nb::python_error();
  return result.ptr() == Py_True;
}

bool is_contiguous(const Tensor& tensor) {
  int64_t stride = 1;
  for (int32_t i = tensor.ndim - 1; tensor.strides && i >= 0; --i) {
    if (tensor.shape[i] != 1 && tensor.strides[i] != stride) return false;
    stride *= tensor.shape[i];
  }
  return true;
}

}  // namespace

bool use_tensor_type(nb::handle type) {
  constexpr const char *kAttribute = "__dlpack_c_exchange_api__", *kName = "dlpack_exchange_api";
  if (!PyType_Check(type.ptr()) || !nb::hasattr(type, kAttribute)) return false;
  const nb::object capsule = type.attr(kAttribute);
  if (!PyCapsule_IsValid(capsule.ptr(), kName)) return false;
  const auto* api = static_cast<const Exchange*>(PyCapsule_GetPointer(capsule.ptr(), kName));
  if (api->major != 1) return false;
  exchange = api;
  tensor_type = reinterpret_cast<PyTypeObject*>(type.inc_ref().ptr());
  is_negated = nb::object(type.attr("is_neg")).release().ptr();
  return true;
}

bool view_tensor(nb::handle tensor, Tensor& view) {
  if (!exchange || Py_TYPE(tensor.ptr()) != tensor_type) return false;
  if (exchange->view_of(tensor.ptr(), &view)) {
    PyErr_Clear();
    return false;
  }
  view.data = static_cast<uint8_t*>(view.data) + view.byte_offset;
  view.byte_offset = 0;
  return view.data && view.device.device_type == kCpu && is_float(view) && is_contiguous(view) &&
         !is_negative_view(tensor);
}

bool view_values(nb::handle tensor, FloatType type, int64_t count, Tensor& view) {
  return view_tensor(tensor, view) && float_type_of(view) == type && count_of(view) == count;
}

int64_t count_of(const Tensor& tensor) {
  return std::accumulate(tensor.shape, tensor.shape + tensor.ndim, int64_t{1}, std::multiplies<>());
}

FloatType float_type_of(const Tensor& tensor) {
  if (tensor.dtype.bits == 32) return FloatType::f32;
  return is_of(tensor, nb::dlpack::dtype_code::Bfloat, 16) ? FloatType::bf16 : FloatType::f16;
}

// One allocation: the managed struct, shape and strides, then the values, aligned to a cache line.
NewTensor::NewTensor(const Tensor& like, int64_t last) {
  constexpr size_t kLine = 64;
  struct Owned : Managed {
    void* memory;
    size_t bytes;
  };
  const size_t dims = static_cast<size_t>(like.ndim), head = sizeof(Owned) + 2 * dims * sizeof(int64_t);
  const size_t begin = (head + kLine - 1) / kLine * kLine;
  size_t bytes = like.dtype.bits / 8 * static_cast<size_t>(last);
  for (size_t i = 0; i + 1 < dims; ++i) bytes *= static_cast<size_t>(like.shape[i]);
  bytes += begin + kLine;
  void* memory = block_cache.allocate(bytes);
  uint8_t* lines = static_cast<uint8_t*>(memory) + (kLine - reinterpret_cast<uintptr_t>(memory) % kLine) % kLine;
  auto* shape = reinterpret_cast<int64_t*>(lines + sizeof(Owned));
  std::copy(like.shape, like.shape + dims, shape);
  shape[dims - 1] = last;
  int64_t stride = 1;
  for (size_t i = dims; i-- > 0; stride *= shape[i]) shape[dims + i] = stride;
  const auto free = [](Managed* managed) {
    const auto* owned = static_cast<Owned*>(managed);
    block_cache.release(owned->memory, owned->bytes);
  };
  managed_ = new (lines) Owned{{1, 0, nullptr, free, 0, like}, memory, bytes};
  managed_->tensor.data = lines + begin;
  managed_->tensor.shape = shape;
  managed_->tensor.strides = shape + dims;
}

NewTensor::~NewTensor() {
  if (managed_) managed_->deleter(managed_);
}

uint8_t* NewTensor::data() const { return static_cast<uint8_t*>(managed_->tensor.data); }

nb::object NewTensor::to_python() {
  void* object = nullptr;
  if (exchange->to_python(managed_, &object)) throw nb::python_error();
  managed_ = nullptr;
  return nb::steal(static_cast<PyObject*>(object));
}

}  // namespace tilepress
