// Memory of KV stores.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>

namespace tilepress {

// Zeroed, 64-byte aligned; in huge pages where it is large and the system offers them. A copy is the same memory.
class KvMemory {
 public:
  KvMemory() = default;
  explicit KvMemory(int64_t size);

  KvMemory clone() const;
  bool is_shared() const { return data_.use_count() > 1; }
  uint8_t* data() const { return data_.get(); }
  int64_t size() const { return size_; }
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data_.get());
  }

 private:
  std::shared_ptr<uint8_t> data_;
  int64_t size_ = 0;
};

}  // namespace tilepress
