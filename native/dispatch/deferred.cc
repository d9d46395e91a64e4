#include "dispatch/deferred.h"

#include <utility>

namespace tilepress {
namespace {

thread_local Deferred* deferred = nullptr;

}  // namespace

Deferred::Deferred(std::function<void()> work) : work_(std::move(work)) { deferred = this; }

Deferred::~Deferred() { deferred = nullptr; }

void Deferred::run_pending() {
  Deferred* pending = std::exchange(deferred, nullptr);
  if (!pending) return;
  try {
    pending->work_();
  } catch (...) {
    pending->thrown_ = std::current_exception();
  }
}

void Deferred::finish() {
  run_pending();
  if (thrown_) std::rethrow_exception(thrown_);
}

}  // namespace tilepress
