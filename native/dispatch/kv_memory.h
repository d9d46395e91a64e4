// Memory of KV stores.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>

namespace tilepress {

// Zeroed, 64-byte aligned; in huge pages where it is large and the system offers them.
class KvMemory {
 public:
  KvMemory() = default;
  explicit KvMemory(int64_t size);
  KvMemory(KvMemory&&) = default;
  KvMemory& operator=(KvMemory&&) = default;

  uint8_t* data() const { return data_.get(); }
  int64_t size() const { return size_; }
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data_.get());
  }

 private:
  struct Free {
    void operator()(uint8_t* memory) const { std::free(memory); }
  };
  std::unique_ptr<uint8_t, Free> data_;
  int64_t size_ = 0;
};

}  // namespace tilepress
