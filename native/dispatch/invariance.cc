#include "dispatch/invariance.h"

#include <atomic>
#include <cstdlib>
#include <string_view>

namespace tilepress {
namespace {

std::atomic<bool>& state() {
  static std::atomic<bool> invariant = [] {
    const char* wanted = std::getenv("TILEPRESS_BATCH_INVARIANT");
    return wanted && *wanted && std::string_view(wanted) != "0";
  }();
  return invariant;
}

}  // namespace

bool batch_invariant() { return state().load(std::memory_order_relaxed); }

bool set_batch_invariant(bool wanted) { return state().exchange(wanted); }

}  // namespace tilepress
