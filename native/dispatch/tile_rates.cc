#include "dispatch/tile_rates.h"

#if defined(__linux__)
#include <sched.h>
#endif

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>

#include "dispatch/checks.h"
#include "dispatch/registry.h"
#include "tilepress/elementwise.h"

namespace tilepress {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kRounds = 256, kProducts = 4 * kRounds;  // of one call; on AMX some 6 us
constexpr double kNotPinned = -1;

bool pin_this_thread([[maybe_unused]] int cpu) {
#if defined(__linux__)
  if (cpu < 0 || cpu >= CPU_SETSIZE) return false;
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  CPU_SET(static_cast<size_t>(cpu), &cpus);
  return sched_setaffinity(0, sizeof cpus, &cpus) == 0;
#else
  return false;
#endif
}

// Threads that multiply at the same time: each is measured only while all the others multiply, too.
class Together {
 public:
  Together(int threads, double seconds) : threads_(threads), seconds_(seconds) {}

  // Products per second of the calling thread, on that CPU; kNotPinned if it may not run there.
  double rate_on(int cpu) {
    const bool pinned = pin_this_thread(cpu);
    begun_.fetch_add(1);
    while (pinned && begun_.load() < threads_.load()) multiply_(kRounds);
    if (pinned) rate_for(seconds_ / 4);
    const double rate = pinned ? rate_for(seconds_) : kNotPinned;
    measured_.fetch_add(1);
    while (pinned && measured_.load() < threads_.load()) multiply_(kRounds);
    return rate;
  }

  // After the system has refused a thread: so many are not waited for.
  void expect(int threads) { threads_.store(threads); }

 private:
  double rate_for(double seconds) const {
    const Clock::time_point begin = Clock::now();
    std::chrono::duration<double> spent{0};
    int64_t products = 0;
    for (; spent.count() < seconds; spent = Clock::now() - begin, products += kProducts) multiply_(kRounds);
    return static_cast<double>(products) / spent.count();
  }

  std::atomic<int> threads_, begun_{0}, measured_{0};
  const double seconds_;
  const KernelOf<ops::multiply_tiles> multiply_ = choose<ops::multiply_tiles>();
};

}  // namespace

std::vector<double> tile_rates(const std::vector<int>& cpus, double seconds) {
  Together together(static_cast<int>(cpus.size()), seconds);
  std::vector<double> rates(cpus.size(), kNotPinned);
  std::vector<std::thread> threads;
  threads.reserve(cpus.size());
  try {
    for (size_t i = 0; i < cpus.size(); ++i) {
      threads.emplace_back([&, i] { rates[i] = together.rate_on(cpus[i]); });
    }
  } catch (const std::system_error&) {
    together.expect(static_cast<int>(threads.size()));
  }
  for (std::thread& thread : threads) thread.join();
  if (threads.size() < cpus.size()) throw std::runtime_error("the system refused a thread");
  for (size_t i = 0; i < cpus.size(); ++i) {
    require(rates[i] != kNotPinned, "no thread of this process may run on CPU " + std::to_string(cpus[i]));
  }
  return rates;
}

}  // namespace tilepress
