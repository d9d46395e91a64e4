#include "dispatch/parallel.h"

#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "dispatch/open_mp.h"
#include "dispatch/own_threads.h"

namespace tilepress {
namespace {

using Clock = std::chrono::steady_clock;

// Whether other programs keep threads of torch's team from cores: for a while after its callers waited for a good part
// of their time, with nothing left to do, for threads that had not come.
class Company {
 public:
  bool is_here() const { return Clock::now().time_since_epoch().count() < until_.load(std::memory_order_relaxed); }

  // A caller was done at `done`, and waited until `end`.
  void note(Clock::time_point done, Clock::time_point end) {
    constexpr std::chrono::milliseconds kWindow{100}, kStay{1000};
    static thread_local Clock::time_point begin = done;
    static thread_local Clock::duration waited{0};
    waited += end - done;
    if (end - begin < kWindow) return;
    if (waited > (end - begin) / 4) {
      until_.store((end + kStay).time_since_epoch().count(), std::memory_order_relaxed);
    } else {
      OwnThreads::of_process().end();
    }
    begin = end;
    waited = Clock::duration{0};
  }

 private:
  std::atomic<Clock::rep> until_{0};
};

Company company;

// The crew that the calling thread's team serves; null if none does.
thread_local Crew* standby = nullptr;

struct Team {
  Crew crew;
  const OpenMp& runtime;
  void (*run)(void*);
  void* context;
  Clock::time_point done;
};

// How long threads of a team spin: as long as the runtime's own, which are as shy where threads outnumber cores.
std::chrono::microseconds team_spin(int workers) {
  static const int cores = static_cast<int>(std::thread::hardware_concurrency());
  return std::chrono::microseconds(workers > cores ? 50 : 10'000);
}

// Calls run(context) while the other threads of the team of torch's runtime serve the calling thread.
void run_in_team(const OpenMp& runtime, int workers, void (*run)(void*), void* context) {
  Team team = {Crew(team_spin(workers)), runtime, run, context, {}};
  const auto take_part = [](void* data) {
    Team& team = *static_cast<Team*>(data);
    if (const int id = team.runtime.thread_number()) return team.crew.serve(id);
    standby = &team.crew;
    team.run(team.context);
    standby = nullptr;
    team.crew.dismiss();
    team.done = Clock::now();
  };
  runtime.parallel(take_part, &team, static_cast<unsigned>(workers), 0);
  company.note(team.done, Clock::now());
}

// Torch's runtime, unless its team would not come. TILEPRESS_THREADS=own: never, so that tests can have it so.
const OpenMp* team_runtime() {
  static const char* const forced = std::getenv("TILEPRESS_THREADS");
  static const bool own = forced && std::string(forced) == "own";
  return own || company.is_here() ? nullptr : open_mp();
}

}  // namespace

int most_threads() {
  static const int most = std::max(64, 2 * static_cast<int>(std::thread::hardware_concurrency()));
  return most;
}

void run_on_workers(int workers, Job job, void* context) {
  workers = std::min(workers, most_threads());
  if (workers <= 1) return job(context, 0);
  if (standby) return standby->run(workers, job, context);
  const OpenMp* runtime = team_runtime();
  if (!runtime) return OwnThreads::of_process().run(workers, job, context);
  struct Call {
    int workers;
    Job job;
    void* context;
  } call = {workers, job, context};
  const auto run = [](void* opaque) {
    const Call& call = *static_cast<Call*>(opaque);
    standby->run(call.workers, call.job, call.context);
  };
  run_in_team(*runtime, workers, run, &call);
}

std::string thread_runtime() {
  const OpenMp* runtime = open_mp();
  Dl_info info{};
  if (!runtime || !dladdr(reinterpret_cast<void*>(runtime->parallel), &info)) return "";
  return info.dli_fname;
}

void run_with_standby_workers(int workers, void (*run)(void* context), void* context) {
  const OpenMp* runtime = workers <= 1 || standby ? nullptr : team_runtime();
  runtime ? run_in_team(*runtime, workers, run, context) : run(context);
}

}  // namespace tilepress
