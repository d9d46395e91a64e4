// Work of a caller that would only wait.
#pragma once

#include <exception>
#include <functional>

namespace tilepress {

// Work that the calling thread does once, as soon as it would only wait for workers of its crew.
class Deferred {
 public:
  explicit Deferred(std::function<void()> work);
  ~Deferred();
  Deferred(const Deferred&) = delete;
  Deferred& operator=(const Deferred&) = delete;

  void finish();              // does the work now if it is not done yet; rethrows what it threw
  static void run_pending();  // this thread's, if it has any

 private:
  std::function<void()> work_;
  std::exception_ptr thrown_;
};

}  // namespace tilepress
