#include "dispatch/crew.h"

#include <chrono>
#include <thread>

#include "dispatch/deferred.h"

namespace tilepress {
namespace {

inline void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("isb");
#endif
}

// Waits until the counter is no longer `old`. Spins at first, since the next job often follows at once; then sleeps.
uint32_t wait_for_change(const std::atomic<uint32_t>& counter, uint32_t old, std::chrono::microseconds spin) {
  const auto until = std::chrono::steady_clock::now() + spin;
  do {
    for (int i = 0; i < 16; ++i) {
      const uint32_t now = counter.load();
      if (now != old) return now;
      pause();
    }
  } while (std::chrono::steady_clock::now() < until);
  counter.wait(old);
  return counter.load();
}

}  // namespace

void Crew::run(int workers, Job job, void* context) {
  if (busy_.test_and_set(std::memory_order_acquire)) return job(context, 0);
  job_ = job;
  context_ = context;
  workers_ = workers;
  state_.fetch_add(1);  // opens the job
  state_.notify_all();
  job(context, 0);
  Deferred::run_pending();
  state_.fetch_add(1);  // closes the job
  while (const uint32_t left = joined_.load()) wait_for_change(joined_, left, spin_);
  busy_.clear(std::memory_order_release);
}

void Crew::serve(int id) {
  uint32_t state = state_.load();
  while (!dismissed_.load()) {
    if (is_open(state)) join(state, id);
    state = wait_for_change(state_, state, spin_);
  }
}

void Crew::dismiss() {
  dismissed_.store(true);
  state_.fetch_add(2);
  state_.notify_all();
}

// Sequentially consistent: either the caller sees that this worker has joined, or the worker sees that the job is
// closed.
void Crew::join(uint32_t state, int id) {
  joined_.fetch_add(1);
  if (state_.load() == state && id < workers_) job_(context_, id);
  if (joined_.fetch_sub(1) == 1) joined_.notify_one();
}

void spin_or_yield(int64_t turn) {
  constexpr int64_t kSpins = 4096;
  turn < kSpins ? pause() : std::this_thread::yield();
}

}  // namespace tilepress
