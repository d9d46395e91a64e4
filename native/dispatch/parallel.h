// The thread pool: kernels start no threads of their own.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <string>
#include <utility>

#include "dispatch/memory.h"

namespace tilepress {

// One of the threads that run a job. Worker 0 is the caller.
struct Worker {
  int id;
  int guaranteed;  // workers with an id below this take part for certain
};

// The most threads that one call uses, however many it asks for: more than a machine gains from, and few enough for a
// process to have. libgomp ends the process if the system refuses it a thread.
int most_threads();

// Calls run(context, worker) on up to `workers` threads, the caller among them, each with its own id below `workers`.
// Returns when all are done.
//
// The threads are those of the OpenMP runtime that torch has loaded, if there is one: they spin for a while after each
// of torch's operations, and threads of our own would compete with them for cores. Otherwise they are those of a pool
// of our own.
void run_on_workers(int workers, void (*run)(void* context, Worker worker), void* context);

// Work that the calling thread does once, as soon as it would only wait for other workers in run_on_workers.
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

// Path of the OpenMP runtime whose threads are used; empty if they are our own.
std::string thread_runtime();

// Calls run(context) on this thread while up to `workers - 1` others stand by, spinning. Until it returns, every
// run_on_workers of this thread is served by them: a job is posted, and each worker joins it as soon as it can. So a
// sequence of short jobs costs little more than its work, and a worker that has no core at the moment delays nobody. A
// job may get fewer than `workers` threads; only the caller is guaranteed. `run` must not throw.
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

// Tickets 0, 1, 2 … that the workers of a job draw. The first ticket of a guaranteed worker is its id, without touching
// the counter: when all workers start at once, contention for it costs a microsecond.
class Tickets {
 public:
  Tickets(SharedCounter& shared, Worker worker)
      : shared_(shared), guaranteed_(worker.guaranteed), reserved_(worker.id < worker.guaranteed ? worker.id : -1) {}

  // Whether the next ticket may be below `end`.
  bool more_below(int64_t end) const {
    return (reserved_ >= 0 ? reserved_ : guaranteed_ + shared_.value.load(std::memory_order_relaxed)) < end;
  }
  int64_t next() { return reserved_ >= 0 ? std::exchange(reserved_, -1) : guaranteed_ + shared_.increment(); }

 private:
  SharedCounter& shared_;
  int64_t guaranteed_, reserved_;
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
  const auto run = [](void* opaque, Worker worker) {
    Context& context = *static_cast<Context*>(opaque);
    Tickets tickets(context.tickets, worker);
    int64_t end = 0;
    for (int64_t first; (first = context.chunk(tickets.next(), end)) < context.count;) {
      for (int64_t item = first; item < end; ++item) context.work(worker.id, item);
    }
  };
  run_on_workers(count > 1 ? threads : 1, run, &context);
}

// One turn of a spin loop; after many turns, it yields the core.
void spin_or_yield(int64_t turn);

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

    void prepare_all(Worker worker, int64_t item, int64_t end) {
      int64_t portion = 0;
      bool more = item < this->count && prefetch.before(item, end, portion++);
      // If there are fewer inputs than workers, those that come first prepare them.
      Tickets next(begun, {worker.id, pending < worker.guaranteed ? 0 : worker.guaranteed});
      while (next.more_below(pending)) {
        const int64_t input = next.next();
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
  const auto run = [](void* opaque, Worker worker) {
    Context& context = *static_cast<Context*>(opaque);
    Tickets tickets(context.tickets, worker);
    int64_t end = 0, ticket = tickets.next(), item = context.chunk(ticket, end);
    if (context.pending) context.prepare_all(worker, item, end);
    if (item >= context.count || !context.inputs.good()) return;
    context.prefetch.after(worker.id, context.threads);
    for (; item < context.count; ticket = tickets.next(), item = context.chunk(ticket, end)) {
      context.work(worker.id, item, end);
    }
    const int64_t finished_before = ticket - context.chunks();  // workers that were done earlier
    if (context.pending && finished_before < context.threads / 2) context.inputs.prefetch_next(worker.id);
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
