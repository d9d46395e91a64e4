#include "dispatch/invariance.h"

#include <atomic>
#include <cstdlib>
#include <string_view>

namespace tilepress {
namespace {

std::atomic<bool>& state() {
  static std::atomic<bool> invariant = [] {
    const char* value = std::getenv("TILEPRESS_BATCH_INVARIANT");
    return value && *value && std::string_view(value) != "0";
  }();
  return invariant;
}

}  // namespace

bool batch_invariant() { return state().load(std::memory_order_relaxed); }

bool set_batch_invariant(bool invariant) { return state().exchange(invariant); }

}  // namespace tilepress
