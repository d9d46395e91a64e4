// Threads belong here: kernels have none.
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

// One of the threads that do a job: `worker` is its number, and those below `sure` all come.
struct Member {
  int worker, sure;
};

// The most threads that one call uses, whatever it is asked for: more than a machine gains from, and few enough for a
// process to have. libgomp ends the process where the system refuses it a thread.
int most_threads();

// Calls run(context, member) on up to `workers` threads, this one among them as worker 0, each with another number
// below `workers`, and returns when all are done. The threads are those of the OpenMP runtime that torch has loaded,
// where there is one: its threads stay awake for a while after each of torch's own operations, and threads of ours
// beside them would wait for cores. Elsewhere they come from a pool of our own.
void run_on_workers(int workers, void (*run)(void* context, Member member), void* context);

// What this thread does aside, once: when it has nothing left to do in run_on_workers but to wait for others.
class Aside {
 public:
  explicit Aside(std::function<void()> todo);
  ~Aside();
  Aside(const Aside&) = delete;
  Aside& operator=(const Aside&) = delete;

  void finish();         // does it now if there was no wait; throws what it threw
  static void do_now();  // this thread's, if it has one to do

 private:
  std::function<void()> todo_;
  std::exception_ptr thrown_;
};

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

// A number that many threads count up, with nothing else beside it.
struct alignas(kLinePair) SharedCount {
  int64_t up(std::memory_order order = std::memory_order_relaxed) { return value.fetch_add(1, order); }

  std::atomic<int64_t> value{0};
};

// Numbers from 0 on, as one of many threads takes them. At first one that is sure to come has its own: asking for it,
// when all others ask too, would take a microsecond.
class Numbers {
 public:
  Numbers(SharedCount& shared, Member member)
      : shared_(shared), sure_(member.sure), own_(member.worker < member.sure ? member.worker : -1) {}

  // Whether the next may be below `end`.
  bool more_below(int64_t end) const {
    return (own_ >= 0 ? own_ : sure_ + shared_.value.load(std::memory_order_relaxed)) < end;
  }
  int64_t next() { return own_ >= 0 ? std::exchange(own_, -1) : sure_ + shared_.up(); }

 private:
  SharedCount& shared_;
  int64_t sure_, own_;
};

// Items below `count`, handed out in runs: to every thread two thirds of its even share of what is left, then again so
// of what is left then. Long at first, so that a thread reads on where it left off; short at the end, so that all end
// together, though some may be half as fast again as others.
struct Runs {
  Runs(int64_t count, int threads) : count(count), threads(std::max(threads, 1)) {}

  // The first item of the run of that number, which `end` ends; `count` when none is left. It follows from the number,
  // so that threads that come at once disturb each other once only; each try to take what another has just taken would
  // cost a microsecond where they are many.
  int64_t at(int64_t number, int64_t& end) const {
    int64_t first = 0, length = length_from(0);
    for (; number >= threads && first < count; number -= threads) {
      first += threads * length;
      length = length_from(first);
    }
    first = std::min(first + number * length, count);
    end = std::min(first + length, count);
    return first;
  }

  // How many there are.
  int64_t runs() const {
    int64_t all = 0;
    for (int64_t first = 0; first < count;) {
      const int64_t length = length_from(first);
      all += std::min(threads, (count - first + length - 1) / length);
      first += threads * length;
    }
    return all;
  }

  const int64_t count, threads;
  SharedCount taken;

 private:
  int64_t length_from(int64_t first) const {
    return std::max<int64_t>(1, (4 * (count - first) + 3 * threads) / (6 * threads));  // to the nearest
  }
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
  const auto run = [](void* opaque, Member member) {
    Context& mine = *static_cast<Context*>(opaque);
    Numbers numbers(mine.taken, member);
    int64_t end = 0;
    for (int64_t first; (first = mine.at(numbers.next(), end)) < mine.count;) {
      for (int64_t item = first; item < end; ++item) mine.work(member.worker, item);
    }
  };
  run_on_workers(count > 1 ? threads : 1, run, &context);
}

// A moment's wait for another thread; after many, its core is left to others.
void wait_a_little(int64_t times);

// Calls work(worker, first item, end) for every run, after first.make_ready(item) for every item below first.waiting(),
// by the same threads, and not at all unless first.good() then; in the end first.finish(), which may throw.
//   ask.before(first item, end, portion): asks memory for a portion of what a thread's first run of work needs; called
//   while it waits for others, with portions from 0 on, until it returns false
//   ask.after(worker, threads): asks for what every thread needs of what is ready now
//   first.take_next(worker): called by threads that are done before half of all are
template <class First, class Prefetch, class Work>
void parallel_after(First& first, int64_t count, int threads, const Prefetch& ask, const Work& work) {
  struct Context : Runs {
    Context(First& first, int64_t count, int threads, const Prefetch& ask, const Work& work)
        : Runs(count, threads), first(first), waiting(first.waiting()), ask(ask), work(work) {}

    void make_all_ready(Member member, int64_t item, int64_t end) {
      int64_t portion = 0;
      bool more = item < this->count && ask.before(item, end, portion++);
      // Where not every thread has one to make, those who come first do.
      Numbers numbers(begun, {member.worker, waiting < member.sure ? 0 : member.sure});
      while (numbers.more_below(waiting)) {
        const int64_t at = numbers.next();
        if (at >= waiting) break;
        first.make_ready(at);
        ready.up(std::memory_order_release);
      }
      for (int64_t times = 0; ready.value.load(std::memory_order_acquire) < waiting;) {
        more ? more = ask.before(item, end, portion++), void() : wait_a_little(times++);
      }
    }

    First& first;
    const int64_t waiting;
    const Prefetch& ask;
    const Work& work;
    SharedCount begun, ready;
  } context(first, count, threads, ask, work);
  const auto run = [](void* opaque, Member member) {
    Context& mine = *static_cast<Context*>(opaque);
    Numbers numbers(mine.taken, member);
    int64_t end = 0, number = numbers.next(), item = mine.at(number, end);
    if (mine.waiting) mine.make_all_ready(member, item, end);
    if (item >= mine.count || !mine.first.good()) return;
    mine.ask.after(member.worker, mine.threads);
    for (; item < mine.count; number = numbers.next(), item = mine.at(number, end)) {
      mine.work(member.worker, item, end);
    }
    const int64_t done_before = number - mine.runs();
    if (mine.waiting && done_before < mine.threads / 2) mine.first.take_next(member.worker);
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
