// The thread pool: kernels start no threads of their own.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <string>

#include "dispatch/crew.h"
#include "dispatch/memory.h"

namespace tilepress {

// The most threads that one call uses, however many it asks for: more than a machine gains from, and few enough for a
// process to have. libgomp ends the process if the system refuses it a thread.
int most_threads();

// Calls job(context, worker) on up to `workers` threads, the caller among them, each with its own number below
// `workers`. Returns when all that came are done; only the caller is certain to come.
//
// The threads are lent by the team of the OpenMP runtime that torch has loaded: they spin for a while after each of
// torch's operations, and others would compete with them for cores. But a team ends only when all its threads have had
// a core, which takes milliseconds where other programs run. While it does, and where there is no such runtime, the
// threads are our own.
void run_on_workers(int workers, Job job, void* context);

// Path of the OpenMP runtime whose threads are used; empty if they are our own.
std::string thread_runtime();

// Calls run(context) on this thread while up to `workers - 1` others stand by. Until it returns, they serve every
// run_on_workers of this thread, so that a sequence of short jobs costs little more than its work. `run` must not
// throw.
void run_with_standby_workers(int workers, void (*run)(void* context), void* context);

// The same for any callable, which may throw.
template <class Work>
void with_standby_workers(int workers, const Work& work) {
  struct Context {
    const Work& work;
    std::exception_ptr thrown;
  } context{work, nullptr};
  const auto run = [](void* opaque) {
    Context& context = *static_cast<Context*>(opaque);
    try {
      context.work();
    } catch (...) {
      context.thrown = std::current_exception();
    }
  };
  run_with_standby_workers(workers, run, &context);
  if (context.thrown) std::rethrow_exception(context.thrown);
}

// A counter that many threads increment, alone in its cache lines.
struct alignas(kLinePair) SharedCounter {
  int64_t increment(std::memory_order order = std::memory_order_relaxed) { return value.fetch_add(1, order); }

  std::atomic<int64_t> value{0};
};

// Items below `count` in chunks of decreasing length, as OpenMP's schedule(guided). In each round every thread gets two
// thirds of an even share of what is left. Long chunks first, so that a thread reads memory in sequence; short ones
// last, so that all threads end together, even if some are half as fast again as others.
struct GuidedSchedule {
  GuidedSchedule(int64_t count, int threads) : count(count), threads(std::max(threads, 1)) {}

  // First item of a chunk, which `end` ends; `count` if there is no such chunk. It is computed from the ticket alone: a
  // thread touches shared memory once per chunk, and there is no compare-and-swap loop for many threads to contend for.
  int64_t chunk(int64_t ticket, int64_t& end) const {
    int64_t first = 0, length = length_from(0);
    for (; ticket >= threads && first < count; ticket -= threads) {
      first += threads * length;
      length = length_from(first);
    }
    first = std::min(first + ticket * length, count);
    end = std::min(first + length, count);
    return first;
  }

  // Number of chunks.
  int64_t chunks() const {
    int64_t all = 0;
    for (int64_t first = 0; first < count;) {
      const int64_t length = length_from(first);
      all += std::min(threads, (count - first + length - 1) / length);
      first += threads * length;
    }
    return all;
  }

  const int64_t count, threads;
  SharedCounter tickets;

 private:
  int64_t length_from(int64_t first) const {
    return std::max<int64_t>(1, (4 * (count - first) + 3 * threads) / (6 * threads));  // rounded to nearest
  }
};

// Calls work(worker id, item) for every item below `count` on at most `threads` threads. `work` must not throw.
// `threads` may exceed `count`, and should not vary between calls: OpenMP ends the threads that a smaller team does not
// need, and starts them again for the next.
template <class Work>
void parallel_for(int64_t count, int threads, const Work& work) {
  struct Context : GuidedSchedule {
    Context(int64_t count, int threads, const Work& work) : GuidedSchedule(count, threads), work(work) {}
    const Work& work;
  } context(count, threads, work);
  const auto run = [](void* opaque, int worker) {
    Context& context = *static_cast<Context*>(opaque);
    int64_t end = 0;
    for (int64_t first; (first = context.chunk(context.tickets.increment(), end)) < context.count;) {
      for (int64_t item = first; item < end; ++item) context.work(worker, item);
    }
  };
  run_on_workers(count > 1 ? threads : 1, run, &context);
}

// The same for work that may throw. The first exception is thrown when all workers are done.
template <class Work>
void parallel_for_throwing(int64_t count, int threads, const Work& work) {
  std::atomic_flag failed;
  std::exception_ptr thrown;
  parallel_for(count, threads, [&](int worker, int64_t item) {
    try {
      work(worker, item);
    } catch (...) {
      if (!failed.test_and_set()) thrown = std::current_exception();
    }
  });
  if (thrown) std::rethrow_exception(thrown);
}

// Two stages as one job: all workers prepare the inputs, then work on chunks of items below `count`.
//
// Inputs:
//   pending()              number of inputs to prepare
//   prepare(input)         called once for each of them
//   good()                 asked when all are prepared; if false, no work is done
//   prefetch_next(worker)  called by workers that finish among the first half
//   finish()               called last, by the caller; may throw
// Prefetch:
//   before(first, end, portion)  prefetches a portion of what a worker's first chunk reads; called while the worker
//                                waits for others, with portions 0, 1, …, until it returns false
//   after(worker, threads)       prefetches what every worker reads of the prepared inputs
// work(worker, first, end): the items of a chunk; must not throw
template <class Inputs, class Prefetch, class Work>
void parallel_after(Inputs& inputs, int64_t count, int threads, const Prefetch& prefetch, const Work& work) {
  struct Context : GuidedSchedule {
    Context(Inputs& inputs, int64_t count, int threads, const Prefetch& prefetch, const Work& work)
        : GuidedSchedule(count, threads), inputs(inputs), pending(inputs.pending()), prefetch(prefetch), work(work) {}

    void prepare_all(int64_t item, int64_t end) {
      int64_t portion = 0;
      bool more = item < this->count && prefetch.before(item, end, portion++);
      while (begun.value.load(std::memory_order_relaxed) < pending) {
        const int64_t input = begun.increment();
        if (input >= pending) break;
        inputs.prepare(input);
        prepared.increment(std::memory_order_release);
      }
      for (int64_t turn = 0; prepared.value.load(std::memory_order_acquire) < pending;) {
        more ? more = prefetch.before(item, end, portion++), void() : spin_or_yield(turn++);
      }
    }

    Inputs& inputs;
    const int64_t pending;
    const Prefetch& prefetch;
    const Work& work;
    SharedCounter begun, prepared;
  } context(inputs, count, threads, prefetch, work);
  const auto run = [](void* opaque, int worker) {
    Context& context = *static_cast<Context*>(opaque);
    int64_t end = 0, ticket = context.tickets.increment(), item = context.chunk(ticket, end);
    if (context.pending) context.prepare_all(item, end);
    if (item >= context.count || !context.inputs.good()) return;
    context.prefetch.after(worker, context.threads);
    for (; item < context.count; ticket = context.tickets.increment(), item = context.chunk(ticket, end)) {
      context.work(worker, item, end);
    }
    const int64_t finished_before = ticket - context.chunks();  // workers that were done earlier
    if (context.pending && finished_before < context.threads / 2) context.inputs.prefetch_next(worker);
  };
  run_on_workers(count > 1 || context.pending > 1 ? threads : 1, run, &context);
  inputs.finish();
}

// The first stage alone.
template <class Inputs>
void prepare(Inputs& inputs, int threads) {
  parallel_for(inputs.pending(), threads, [&](int, int64_t input) { inputs.prepare(input); });
  inputs.finish();
}

}  // namespace tilepress
