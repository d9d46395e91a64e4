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
  bool run(int workers, void (*job)(void*, Member), void* context) {
    std::unique_lock<std::mutex> mine(busy_, std::try_to_lock);
    if (!mine) return false;
    while (static_cast<int>(threads_.size()) < workers - 1 && start()) continue;
    workers = std::min(workers, static_cast<int>(threads_.size()) + 1);
    job_ = job;
    context_ = context;
    workers_ = workers;
    left_.store(workers - 1, std::memory_order_relaxed);
    for (int worker = 1; worker < workers; ++worker) threads_[static_cast<size_t>(worker) - 1].wake();
    job(context, {0, workers});
    Aside::do_now();
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

  // Detached: they sleep until the process ends, and hold nothing that must be given back. False where the system has
  // no more threads.
  bool start() {
    const int worker = static_cast<int>(threads_.size()) + 1;
    Worker& mine = threads_.emplace_back();
    try {
      std::thread([this, worker, &mine] { serve(worker, mine); }).detach();
    } catch (const std::system_error&) {
      threads_.pop_back();
      return false;
    }
    return true;
  }

  [[noreturn]] void serve(int worker, const Worker& mine) {
    for (uint32_t seen = 0;;) {
      seen = wait_for_change(mine.calls, seen);
      job_(context_, {worker, workers_});
      if (left_.fetch_sub(1, std::memory_order_acq_rel) == 1) left_.notify_one();
    }
  }

  std::mutex busy_;
  std::deque<Worker> threads_;  // whose elements never move
  std::atomic<uint32_t> left_{0};
  void (*job_)(void*, Member) = nullptr;
  void* context_ = nullptr;
  int workers_ = 0;
};

// Threads that stand by while one of them, the caller, has jobs for them. They are not counted on: who comes while a
// job is open takes part, and the caller waits for those who did.
class Crew {
 public:
  // The caller's, from any depth of its calls; null where it has none.
  static thread_local Crew* mine;

  void run(int workers, void (*job)(void*, Member), void* context) {
    job_ = job;
    context_ = context;
    workers_ = workers;
    state_.fetch_add(1);  // opens it
    job(context, {0, 1});
    Aside::do_now();
    state_.fetch_add(1);  // closes it
    while (inside_.load() > 0) pause();
  }

  void dismiss() { dismissed_.store(true, std::memory_order_release); }

  void stand_by(int worker) {
    while (!dismissed_.load(std::memory_order_acquire)) {
      const uint32_t state = wait_for_job();
      if (is_open(state)) take_part(state, worker);
    }
  }

 private:
  static bool is_open(uint32_t state) { return state % 2 == 1; }

  // Where threads outnumber cores, the one with work needs this one's.
  uint32_t wait_for_job() const {
    constexpr int kAwake = 4096;
    for (int i = 0; !dismissed_.load(std::memory_order_acquire); ++i) {
      const uint32_t state = state_.load();
      if (is_open(state)) return state;
      i < kAwake ? pause() : std::this_thread::yield();
    }
    return 0;
  }

  // Either the caller sees that this one is inside, or this one that the job is closed: both orders are sequentially
  // consistent. Having done its part, it waits until the job is closed, so as not to take part twice.
  void take_part(uint32_t state, int worker) {
    inside_.fetch_add(1);
    if (state_.load() == state && worker < workers_) job_(context_, {worker, 1});
    inside_.fetch_sub(1);
    while (state_.load() == state) pause();
  }

  alignas(kLinePair) std::atomic<uint32_t> state_{0};  // odd while a job is open
  void (*job_)(void*, Member) = nullptr;
  void* context_ = nullptr;
  int workers_ = 0;
  std::atomic<bool> dismissed_{false};
  alignas(kLinePair) std::atomic<int> inside_{0};
};

thread_local Crew* Crew::mine = nullptr;

// The entry points of GNU's OpenMP runtime, which compilers call and which therefore never change.
struct OpenMp {
  void (*parallel)(void (*run)(void*), void* data, unsigned threads, unsigned flags) = nullptr;
  int (*thread_number)() = nullptr;
  int (*threads)() = nullptr;
};

// The library of that name that somebody has loaded into this process already, whatever follows the name; null where
// there is none.
void* loaded_library(const char* name) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    const size_t path = line.find('/');
    if (path == std::string::npos || line.find(name, path) == std::string::npos) continue;
    if (void* library = dlopen(line.c_str() + path, RTLD_LAZY | RTLD_NOLOAD)) return library;
  }
  return nullptr;
}

// The runtime that torch computes with, under whatever name: there may be several in a process, one for each package
// that brings its own, and threads of another would fight torch's for cores. Symbols of a library are looked up in
// those that it was linked with too. Without torch, any.
OpenMp find_open_mp() {
  for (const char* name : {"/libtorch_cpu.so", "/libgomp"}) {
    void* library = loaded_library(name);
    if (!library) continue;
    OpenMp found;
    found.parallel = reinterpret_cast<decltype(found.parallel)>(dlsym(library, "GOMP_parallel"));
    found.thread_number = reinterpret_cast<decltype(found.thread_number)>(dlsym(library, "omp_get_thread_num"));
    found.threads = reinterpret_cast<decltype(found.threads)>(dlsym(library, "omp_get_num_threads"));
    if (found.parallel && found.thread_number && found.threads) return found;
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
  void (*run)(void*, Member);
  void* context;
  const OpenMp& runtime;
};

thread_local Aside* to_do_aside = nullptr;

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

int most_threads() {
  static const int most = std::max(64, 2 * static_cast<int>(std::thread::hardware_concurrency()));
  return most;
}

void run_on_workers(int workers, void (*run)(void* context, Member member), void* context) {
  workers = std::min(workers, most_threads());
  if (workers <= 1) return run(context, {0, 1});
  if (Crew::mine) return Crew::mine->run(workers, run, context);
  if (const OpenMp* shared = open_mp()) {
    Team team = {run, context, *shared};
    const auto member = [](void* data) {
      const Team& mine = *static_cast<Team*>(data);
      const Member member = {mine.runtime.thread_number(), mine.runtime.threads()};
      mine.run(mine.context, member);
      if (member.worker == 0) Aside::do_now();
    };
    return shared->parallel(member, &team, static_cast<unsigned>(workers), 0);
  }
  if (!pool().run(workers, run, context)) run(context, {0, 1});
}

Aside::Aside(std::function<void()> todo) : todo_(std::move(todo)) { to_do_aside = this; }

Aside::~Aside() { to_do_aside = nullptr; }

void Aside::do_now() {
  Aside* mine = std::exchange(to_do_aside, nullptr);
  if (!mine) return;
  try {
    mine->todo_();
  } catch (...) {
    mine->thrown_ = std::current_exception();
  }
}

void Aside::finish() {
  do_now();
  if (thrown_) std::rethrow_exception(thrown_);
}

void wait_a_little(int64_t times) {
  constexpr int64_t kAwake = 4096;
  times < kAwake ? pause() : std::this_thread::yield();
}

std::string thread_runtime() {
  const OpenMp* shared = open_mp();
  Dl_info where{};
  if (!shared || !dladdr(reinterpret_cast<void*>(shared->parallel), &where)) return "";
  return where.dli_fname;
}

void run_with_crew(int workers, void (*run)(void* context), void* context) {
  if (workers <= 1 || Crew::mine) return run(context);
  struct Roles {
    Crew crew;
    void (*run)(void*);
    void* context;
  } roles{{}, run, context};
  const auto role = [](void* data, Member member) {
    Roles& all = *static_cast<Roles*>(data);
    if (member.worker > 0) return all.crew.stand_by(member.worker);
    Crew::mine = &all.crew;
    all.run(all.context);
    Crew::mine = nullptr;
    all.crew.dismiss();
  };
  run_on_workers(workers, role, &roles);
}

}  // namespace tilepress
