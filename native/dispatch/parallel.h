// Threads belong here: kernels have none.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <string>

namespace tilepress {

// Calls run(context, worker) on up to `workers` threads, this one among them, each with another number below `workers`,
// and returns when all are done. The threads are those of the OpenMP runtime that torch has loaded, where there is one:
// its threads stay awake for a while after each of torch's own operations, and threads of ours beside them would wait
// for cores. Elsewhere they come from a pool of our own.
void run_on_workers(int workers, void (*run)(void* context, int worker), void* context);

// The file of the runtime whose threads those are; empty where they are our own.
std::string thread_runtime();

// Calls run(context) on this thread with up to `workers - 1` others standing by, awake: until it returns, they take
// part in whatever this thread gives to run_on_workers, each as soon as it can. So many short jobs in a row cost little
// more than their work, and a thread that has no core at the moment holds up nobody. A job may therefore be run by
// fewer than `workers`, by this thread at the least. `run` must not throw.
void run_with_crew(int workers, void (*run)(void* context), void* context);

// The same for any callable, which may throw.
template <class Work>
void with_crew(int workers, const Work& work) {
  struct Context {
    const Work& work;
    std::exception_ptr thrown;
  } context{work, nullptr};
  const auto run = [](void* opaque) {
    Context& mine = *static_cast<Context*>(opaque);
    try {
      mine.work();
    } catch (...) {
      mine.thrown = std::current_exception();
    }
  };
  run_with_crew(workers, run, &context);
  if (context.thrown) std::rethrow_exception(context.thrown);
}

// Items below `count`, handed out in runs, half of an even share of what is left at a time: long at first, so that a
// thread reads on where it left off; short at the end, so that all end together.
struct Runs {
  Runs(int64_t count, int threads) : count(count), shares(2 * std::max(threads, 1)) {}

  // The first item of the next run, which `end` ends; `count` when none is left.
  int64_t take(int64_t& end) {
    int64_t first = next.load(std::memory_order_relaxed);
    do {
      end = first + std::max<int64_t>(1, (count - first) / shares);
    } while (first < count && !next.compare_exchange_weak(first, end, std::memory_order_relaxed));
    return first;
  }

  const int64_t count, shares;
  std::atomic<int64_t> next{0};
};

// Calls work(worker, item) for every item below `count` from at most `threads` threads. More threads than items is no
// mistake: OpenMP ends those that a smaller team does not want and has to start them anew for the next. `work` must not
// throw.
template <class Work>
void parallel_for(int64_t count, int threads, const Work& work) {
  struct Context : Runs {
    Context(int64_t count, int threads, const Work& work) : Runs(count, threads), work(work) {}
    const Work& work;
  } context(count, threads, work);
  const auto run = [](void* opaque, int worker) {
    Context& mine = *static_cast<Context*>(opaque);
    int64_t end = 0;
    for (int64_t first; (first = mine.take(end)) < mine.count;) {
      for (int64_t item = first; item < end; ++item) mine.work(worker, item);
    }
  };
  run_on_workers(count > 1 ? threads : 1, run, &context);
}

// A moment's wait for another thread; after many, its core is left to others.
void wait_a_little(int64_t times);

// Calls work(worker, first item, end) for every run, after first.make_ready(item) for every item below first.waiting(),
// by the same threads, and not at all unless first.good() then; in the end first.finish(), which may throw. Threads
// that wait for others call ask(first item, end, portion) in the meantime, of their first run of work, with portions
// from 0 on until it returns false: to ask memory for what they will need.
template <class First, class Ask, class Work>
void parallel_after(First& first, int64_t count, int threads, const Ask& ask, const Work& work) {
  struct Context : Runs {
    Context(First& first, int64_t count, int threads, const Ask& ask, const Work& work)
        : Runs(count, threads), first(first), waiting(first.waiting()), ask(ask), work(work) {}

    First& first;
    const int64_t waiting;
    const Ask& ask;
    const Work& work;
    alignas(64) std::atomic<int64_t> taken{0};
    alignas(64) std::atomic<int64_t> ready{0};
  } context(first, count, threads, ask, work);
  const auto run = [](void* opaque, int worker) {
    Context& mine = *static_cast<Context*>(opaque);
    int64_t end = 0, item = mine.take(end), portion = 0;
    bool more = mine.waiting && item < mine.count && mine.ask(item, end, portion++);
    for (int64_t at; (at = mine.taken.fetch_add(1, std::memory_order_relaxed)) < mine.waiting;) {
      mine.first.make_ready(at);
      mine.ready.fetch_add(1, std::memory_order_release);
    }
    for (int64_t times = 0; mine.ready.load(std::memory_order_acquire) < mine.waiting;) {
      more ? more = mine.ask(item, end, portion++), void() : wait_a_little(times++);
    }
    if (!mine.first.good()) return;
    for (; item < mine.count; item = mine.take(end)) mine.work(worker, item, end);
  };
  run_on_workers(count > 1 || context.waiting > 1 ? threads : 1, run, &context);
  first.finish();
}

// The first part alone.
template <class First>
void make_ready(First& first, int threads) {
  parallel_for(first.waiting(), threads, [&](int, int64_t item) { first.make_ready(item); });
  first.finish();
}

}  // namespace tilepress
