// Threads belong here: kernels have none.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace tilepress {

// Calls work(worker, item) for every item below `count` from at most `threads` threads, this one among them.
// Items are handed out one by one, so uneven ones balance. `work` must not throw.
template <class Work>
void parallel_for(int64_t count, int threads, const Work& work) {
  std::atomic<int64_t> next{0};
  const auto run = [&](int worker) {
    for (int64_t item; (item = next.fetch_add(1, std::memory_order_relaxed)) < count;) work(worker, item);
  };
  const int workers = static_cast<int>(std::clamp<int64_t>(threads, 1, std::max<int64_t>(count, 1)));
  std::vector<std::jthread> others;
  others.reserve(static_cast<size_t>(workers) - 1);
  for (int worker = 1; worker < workers; ++worker) others.emplace_back(run, worker);
  run(0);
}

}  // namespace tilepress
