// Threads belong here: kernels have none.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace tilepress {

// Calls run(context, worker) on up to `workers` threads, this one among them, each with another number below `workers`,
// and returns when all are done. The threads are those of the OpenMP runtime that torch has loaded, where there is one:
// its threads stay awake for a while after each of torch's own operations, and threads of ours beside them would wait
// for cores. Elsewhere they come from a pool of our own.
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
