#include "dispatch/own_threads.h"

#include <unistd.h>

#include <chrono>
#include <mutex>
#include <system_error>
#include <thread>

#include "dispatch/open_mp.h"

namespace tilepress {
namespace {

constexpr std::chrono::microseconds kSpin{50};  // more would keep torch's threads from cores

struct Team {
  Crew& crew;
  const OpenMp& runtime;
};

// The calling thread's own team serves the crew; itself it only waits for the others.
void serve_by_team(Crew& crew, const OpenMp& runtime, int workers) {
  Team team = {crew, runtime};
  const auto serve = [](void* data) {
    const Team& team = *static_cast<Team*>(data);
    if (const int id = team.runtime.thread_number()) team.crew.serve(id);
  };
  runtime.parallel(serve, &team, static_cast<unsigned>(workers), 0);
}

}  // namespace

// Never destroyed, since its threads outlive every destructor.
OwnThreads& OwnThreads::of_process() {
  static std::mutex making;
  static OwnThreads* current = nullptr;
  static pid_t owner = 0;
  const std::lock_guard<std::mutex> lock(making);
  if (!current || owner != getpid()) {
    current = new OwnThreads;
    owner = getpid();
  }
  return *current;
}

void OwnThreads::run(int workers, Job job, void* context) {
  if (busy_.test_and_set(std::memory_order_acquire)) return job(context, 0);
  if (workers > workers_) start(workers);
  crew_->run(workers, job, context);
  busy_.clear(std::memory_order_release);
}

void OwnThreads::end() {
  if (busy_.test_and_set(std::memory_order_acquire)) return;
  if (crew_) crew_->dismiss();
  crew_.reset();
  workers_ = 0;
  busy_.clear(std::memory_order_release);
}

// If the system refuses a thread, there are fewer.
void OwnThreads::start(int workers) {
  if (crew_) crew_->dismiss();
  crew_ = std::make_shared<Crew>(kSpin);
  workers_ = workers;
  try {
    if (const OpenMp* runtime = open_mp()) {
      std::thread([crew = crew_, runtime, workers] { serve_by_team(*crew, *runtime, workers); }).detach();
    } else {
      for (int id = 1; id < workers; ++id) std::thread([crew = crew_, id] { crew->serve(id); }).detach();
    }
  } catch (const std::system_error&) {
  }
}

}  // namespace tilepress
