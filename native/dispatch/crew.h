// Threads that serve one caller.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include "dispatch/memory.h"

namespace tilepress {

// One of the threads that run a job calls this; worker 0 is the caller.
using Job = void (*)(void* context, int worker);

// Workers and a caller, who posts jobs. A worker that arrives while a job is open joins it; the caller works, too, and
// waits only for those that joined. So a worker without a core costs nothing, and a job must be divided among those
// that come: by tickets that they draw, never by their ids.
class Crew {
 public:
  // `spin`: how long those that wait spin before they sleep.
  explicit Crew(std::chrono::microseconds spin) : spin_(spin) {}

  // Calls job(context, worker) on the calling thread and on workers with ids below `workers`. Alone, if another job is
  // open: a nested one, or that of another thread.
  void run(int workers, Job job, void* context);

  // Joins jobs as worker `id`, 1 or above, until the crew is dismissed.
  void serve(int id);
  void dismiss();

 private:
  void join(uint32_t state, int id);
  static bool is_open(uint32_t state) { return state % 2 == 1; }

  const std::chrono::microseconds spin_;
  alignas(kLinePair) std::atomic<uint32_t> state_{0};  // odd while a job is open
  Job job_ = nullptr;
  void* context_ = nullptr;
  int workers_ = 0;
  std::atomic<bool> dismissed_{false};
  std::atomic_flag busy_;
  alignas(kLinePair) std::atomic<uint32_t> joined_{0};
};

// One turn of a spin loop; after many turns, it yields the core.
void spin_or_yield(int64_t turn);

}  // namespace tilepress
