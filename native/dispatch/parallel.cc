#include "dispatch/parallel.h"

#include <dlfcn.h>
#include <unistd.h>

#include <chrono>
#include <deque>
#include <fstream>
#include <mutex>
#include <string>
#include <thread>

namespace tilepress {
namespace {

inline void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("isb");
#endif
}

// Waits until the counter is no longer `old`: awake for a moment, since the next call often follows at once, then
// asleep, so that other thread pools have the cores.
uint32_t wait_for_change(const std::atomic<uint32_t>& counter, uint32_t old) {
  constexpr auto kAwake = std::chrono::microseconds(50);
  const auto until = std::chrono::steady_clock::now() + kAwake;
  do {
    for (int i = 0; i < 16; ++i) {
      const uint32_t now = counter.load(std::memory_order_acquire);
      if (now != old) return now;
      pause();
    }
  } while (std::chrono::steady_clock::now() < until);
  counter.wait(old, std::memory_order_acquire);
  return counter.load(std::memory_order_acquire);
}

class Pool {
 public:
  // Returns false if another call has the pool.
  bool run(int workers, void (*job)(void*, int), void* context) {
    std::unique_lock<std::mutex> mine(busy_, std::try_to_lock);
    if (!mine) return false;
    while (static_cast<int>(threads_.size()) < workers - 1) start();
    job_ = job;
    context_ = context;
    left_.store(workers - 1, std::memory_order_relaxed);
    for (int worker = 1; worker < workers; ++worker) threads_[static_cast<size_t>(worker) - 1].wake();
    job(context, 0);
    while (uint32_t left = left_.load(std::memory_order_acquire)) wait_for_change(left_, left);
    return true;
  }

 private:
  struct Worker {
    std::atomic<uint32_t> calls{0};

    void wake() {
      calls.fetch_add(1, std::memory_order_release);
      calls.notify_one();
    }
  };

  // Detached: they sleep until the process ends, and hold nothing that must be given back.
  void start() {
    const int worker = static_cast<int>(threads_.size()) + 1;
    Worker& mine = threads_.emplace_back();
    std::thread([this, worker, &mine] {
      for (uint32_t seen = 0;;) {
        seen = wait_for_change(mine.calls, seen);
        job_(context_, worker);
        if (left_.fetch_sub(1, std::memory_order_acq_rel) == 1) left_.notify_one();
      }
    }).detach();
  }

  std::mutex busy_;
  std::deque<Worker> threads_;  // whose elements never move
  std::atomic<uint32_t> left_{0};
  void (*job_)(void*, int) = nullptr;
  void* context_ = nullptr;
};

// The entry points of GNU's OpenMP runtime, which compilers call and which therefore never change.
struct OpenMp {
  void (*parallel)(void (*run)(void*), void* data, unsigned threads, unsigned flags) = nullptr;
  int (*thread_number)() = nullptr;
};

// The runtime that somebody has loaded into this process already; torch brings its own, under a name of its own.
OpenMp find_open_mp() {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    const size_t path = line.find('/');
    if (path == std::string::npos || line.find("libgomp", path) == std::string::npos) continue;
    void* library = dlopen(line.c_str() + path, RTLD_LAZY | RTLD_NOLOAD);
    if (!library) continue;
    OpenMp found;
    found.parallel = reinterpret_cast<decltype(found.parallel)>(dlsym(library, "GOMP_parallel"));
    found.thread_number = reinterpret_cast<decltype(found.thread_number)>(dlsym(library, "omp_get_thread_num"));
    if (found.parallel && found.thread_number) return found;
  }
  return {};
}

// Null where there is none, and in a forked child, where the runtime's threads are gone and it does not know.
const OpenMp* open_mp() {
  static const OpenMp found = find_open_mp();
  static const pid_t owner = getpid();
  return found.parallel && owner == getpid() ? &found : nullptr;
}

struct Team {
  void (*run)(void*, int);
  void* context;
  int (*thread_number)();
};

// Never destroyed, since its threads outlive every destructor; and one a process, since a fork copies no threads.
Pool& pool() {
  static std::mutex making;
  static Pool* current = nullptr;
  static pid_t owner = 0;
  const std::lock_guard<std::mutex> lock(making);
  if (!current || owner != getpid()) {
    current = new Pool;
    owner = getpid();
  }
  return *current;
}

}  // namespace

void run_on_workers(int workers, void (*run)(void* context, int worker), void* context) {
  if (workers <= 1) return run(context, 0);
  if (const OpenMp* shared = open_mp()) {
    Team team = {run, context, shared->thread_number};
    const auto member = [](void* data) {
      const Team& mine = *static_cast<Team*>(data);
      mine.run(mine.context, mine.thread_number());
    };
    return shared->parallel(member, &team, static_cast<unsigned>(workers), 0);
  }
  if (!pool().run(workers, run, context)) run(context, 0);
}

}  // namespace tilepress
