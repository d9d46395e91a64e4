// Threads belong here: kernels have none.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace tilepress {

// Calls run(context, worker) on `workers` threads, this one among them as worker 0, and returns when all are done. The
// others come from a pool that lives as long as the process and grows to the largest number asked for. One call at a
// time has the pool; a call that finds it taken (from another thread, say) runs everything on its own thread.
void run_on_workers(int workers, void (*run)(void* context, int worker), void* context);

// Calls work(worker, item) for every item below `count` from at most `threads` threads. Items are handed out in runs,
// eight or so to a thread: long, so that a thread reads on where it left off; several, so that uneven ones balance.
// `work` must not throw.
template <class Work>
void parallel_for(int64_t count, int threads, const Work& work) {
  struct Context {
    const Work& work;
    int64_t count, run;
    std::atomic<int64_t> next{0};
  } context{work, count, std::max<int64_t>(1, count / (8 * std::max(threads, 1)))};
  const auto run = [](void* opaque, int worker) {
    Context& mine = *static_cast<Context*>(opaque);
    for (int64_t first; (first = mine.next.fetch_add(mine.run, std::memory_order_relaxed)) < mine.count;) {
      const int64_t end = std::min(first + mine.run, mine.count);
      for (int64_t item = first; item < end; ++item) mine.work(worker, item);
    }
  };
  run_on_workers(static_cast<int>(std::clamp<int64_t>(threads, 1, std::max<int64_t>(count, 1))), run, &context);
}

}  // namespace tilepress
