#include "dispatch/parallel.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <fstream>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

namespace tilepress {
namespace {

inline void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("isb");
#endif
}

// Waits until the counter is no longer `old`. Spins for a moment, since the next call often follows at once; then
// sleeps, so that other thread pools can use the core.
uint32_t wait_for_change(const std::atomic<uint32_t>& counter, uint32_t old) {
  constexpr auto kSpin = std::chrono::microseconds(50);
  const auto until = std::chrono::steady_clock::now() + kSpin;
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

// Threads of our own.
class Pool {
 public:
  // Returns false if another call uses the pool.
  bool run(int workers, void (*job)(void*, Worker), void* context) {
    std::unique_lock<std::mutex> lock(busy_, std::try_to_lock);
    if (!lock) return false;
    while (static_cast<int>(threads_.size()) < workers - 1 && start()) continue;
    workers = std::min(workers, static_cast<int>(threads_.size()) + 1);
    job_ = job;
    context_ = context;
    workers_ = workers;
    left_.store(workers - 1, std::memory_order_relaxed);
    for (int id = 1; id < workers; ++id) threads_[static_cast<size_t>(id) - 1].wake();
    job(context, {0, workers});
    Deferred::run_pending();
    while (uint32_t left = left_.load(std::memory_order_acquire)) wait_for_change(left_, left);
    return true;
  }

 private:
  struct Thread {
    std::atomic<uint32_t> calls{0};

    void wake() {
      calls.fetch_add(1, std::memory_order_release);
      calls.notify_one();
    }
  };

  // Starts a detached thread: it sleeps until the process ends, and owns nothing. False if the system refuses one.
  bool start() {
    const int id = static_cast<int>(threads_.size()) + 1;
    Thread& thread = threads_.emplace_back();
    try {
      std::thread([this, id, &thread] { serve(id, thread); }).detach();
    } catch (const std::system_error&) {
      threads_.pop_back();
      return false;
    }
    return true;
  }

  [[noreturn]] void serve(int id, const Thread& thread) {
    for (uint32_t seen = 0;;) {
      seen = wait_for_change(thread.calls, seen);
      job_(context_, {id, workers_});
      if (left_.fetch_sub(1, std::memory_order_acq_rel) == 1) left_.notify_one();
    }
  }

  std::mutex busy_;
  std::deque<Thread> threads_;  // its elements never move
  std::atomic<uint32_t> left_{0};
  void (*job_)(void*, Worker) = nullptr;
  void* context_ = nullptr;
  int workers_ = 0;
};

// Workers that spin while one thread, the caller, posts jobs. A worker that arrives while a job is open joins it; the
// caller waits only for those that joined.
class StandbyWorkers {
 public:
  // Those of the calling thread; null if it has none.
  static thread_local StandbyWorkers* current;

  void run(int workers, void (*job)(void*, Worker), void* context) {
    job_ = job;
    context_ = context;
    workers_ = workers;
    state_.fetch_add(1);  // opens the job
    job(context, {0, 1});
    Deferred::run_pending();
    state_.fetch_add(1);  // closes the job
    while (joined_.load() > 0) pause();
  }

  void dismiss() { dismissed_.store(true, std::memory_order_release); }

  void stand_by(int id) {
    while (!dismissed_.load(std::memory_order_acquire)) {
      const uint32_t state = wait_for_job();
      if (is_open(state)) join(state, id);
    }
  }

 private:
  static bool is_open(uint32_t state) { return state % 2 == 1; }

  // Yields after a while: if there are more threads than cores, one with work needs this core.
  uint32_t wait_for_job() const {
    constexpr int kSpins = 4096;
    for (int i = 0; !dismissed_.load(std::memory_order_acquire); ++i) {
      const uint32_t state = state_.load();
      if (is_open(state)) return state;
      i < kSpins ? pause() : std::this_thread::yield();
    }
    return 0;
  }

  // Sequentially consistent: either the caller sees that this worker has joined, or the worker sees that the job is
  // closed. Afterwards it waits until the job is closed, so that it does not join twice.
  void join(uint32_t state, int id) {
    joined_.fetch_add(1);
    if (state_.load() == state && id < workers_) job_(context_, {id, 1});
    joined_.fetch_sub(1);
    while (state_.load() == state) pause();
  }

  alignas(kLinePair) std::atomic<uint32_t> state_{0};  // odd while a job is open
  void (*job_)(void*, Worker) = nullptr;
  void* context_ = nullptr;
  int workers_ = 0;
  std::atomic<bool> dismissed_{false};
  alignas(kLinePair) std::atomic<int> joined_{0};
};

thread_local StandbyWorkers* StandbyWorkers::current = nullptr;

// Entry points of GNU's OpenMP runtime. Compiled programs call them, so they never change.
struct OpenMp {
  void (*parallel)(void (*run)(void*), void* data, unsigned threads, unsigned flags) = nullptr;
  int (*thread_number)() = nullptr;
  int (*threads)() = nullptr;
};

// The library that is loaded into this process already and whose path contains `name`; null if there is none.
void* loaded_library(const char* name) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    const size_t path = line.find('/');
    if (path == std::string::npos || line.find(name, path) == std::string::npos) continue;
    if (void* library = dlopen(line.c_str() + path, RTLD_LAZY | RTLD_NOLOAD)) return library;
  }
  return nullptr;
}

// The runtime that torch uses: a process may have several, one for each package that brings its own, and threads of
// another would compete with torch's for cores. dlsym also searches the libraries that libtorch_cpu was linked with.
// Without torch, any libgomp.
OpenMp find_open_mp() {
  for (const char* name : {"/libtorch_cpu.so", "/libgomp"}) {
    void* library = loaded_library(name);
    if (!library) continue;
    OpenMp runtime;
    runtime.parallel = reinterpret_cast<decltype(runtime.parallel)>(dlsym(library, "GOMP_parallel"));
    runtime.thread_number = reinterpret_cast<decltype(runtime.thread_number)>(dlsym(library, "omp_get_thread_num"));
    runtime.threads = reinterpret_cast<decltype(runtime.threads)>(dlsym(library, "omp_get_num_threads"));
    if (runtime.parallel && runtime.thread_number && runtime.threads) return runtime;
  }
  return {};
}

// Null if there is none, and in a forked child: the runtime's threads are gone there, and it does not know.
const OpenMp* open_mp() {
  static const OpenMp runtime = find_open_mp();
  static const pid_t owner = getpid();
  return runtime.parallel && owner == getpid() ? &runtime : nullptr;
}

struct Team {
  void (*run)(void*, Worker);
  void* context;
  const OpenMp& runtime;
};

thread_local Deferred* deferred = nullptr;

// Never destroyed, since its threads outlive every destructor. A new one after a fork, which copies no threads.
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

int most_threads() {
  static const int most = std::max(64, 2 * static_cast<int>(std::thread::hardware_concurrency()));
  return most;
}

void run_on_workers(int workers, void (*run)(void* context, Worker worker), void* context) {
  workers = std::min(workers, most_threads());
  if (workers <= 1) return run(context, {0, 1});
  if (StandbyWorkers::current) return StandbyWorkers::current->run(workers, run, context);
  if (const OpenMp* runtime = open_mp()) {
    Team team = {run, context, *runtime};
    const auto run_worker = [](void* data) {
      const Team& team = *static_cast<Team*>(data);
      const Worker worker = {team.runtime.thread_number(), team.runtime.threads()};
      team.run(team.context, worker);
      if (worker.id == 0) Deferred::run_pending();
    };
    return runtime->parallel(run_worker, &team, static_cast<unsigned>(workers), 0);
  }
  if (!pool().run(workers, run, context)) run(context, {0, 1});
}

Deferred::Deferred(std::function<void()> work) : work_(std::move(work)) { deferred = this; }

Deferred::~Deferred() { deferred = nullptr; }

void Deferred::run_pending() {
  Deferred* pending = std::exchange(deferred, nullptr);
  if (!pending) return;
  try {
    pending->work_();
  } catch (...) {
    pending->thrown_ = std::current_exception();
  }
}

void Deferred::finish() {
  run_pending();
  if (thrown_) std::rethrow_exception(thrown_);
}

void spin_or_yield(int64_t turn) {
  constexpr int64_t kSpins = 4096;
  turn < kSpins ? pause() : std::this_thread::yield();
}

std::string thread_runtime() {
  const OpenMp* runtime = open_mp();
  Dl_info info{};
  if (!runtime || !dladdr(reinterpret_cast<void*>(runtime->parallel), &info)) return "";
  return info.dli_fname;
}

void run_with_standby_workers(int workers, void (*run)(void* context), void* context) {
  if (workers <= 1 || StandbyWorkers::current) return run(context);
  struct Context {
    StandbyWorkers standby;
    void (*run)(void*);
    void* context;
  } shared{{}, run, context};
  const auto run_worker = [](void* data, Worker worker) {
    Context& shared = *static_cast<Context*>(data);
    if (worker.id > 0) return shared.standby.stand_by(worker.id);
    StandbyWorkers::current = &shared.standby;
    shared.run(shared.context);
    StandbyWorkers::current = nullptr;
    shared.standby.dismiss();
  };
  run_on_workers(workers, run_worker, &shared);
}

}  // namespace tilepress
