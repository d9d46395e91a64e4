#include "engine/exchange.h"

#include <poll.h>

#include <algorithm>
#include <atomic>
#include <climits>
#include <stdexcept>
#include <string>
#include <thread>

#include "dispatch/checks.h"
#include "dispatch/crew.h"
#include "dispatch/parallel.h"

#if defined(__linux__)
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#endif

namespace tilepress {
namespace {

constexpr int64_t kSlot = int64_t{1} << 16;  // floats
constexpr int64_t kPage = 4096;              // bytes: so that slots are on the node of the rank that writes to them
constexpr int64_t kMostRanks = 1024;
constexpr int64_t kSpins = 4200;  // then a rank sleeps
#if defined(__linux__)
constexpr int64_t kSleepNanos = 20'000'000;  // at most, until it looks whether others are alive
#else
constexpr int64_t kSleepNanos = 50'000;
#endif
constexpr int64_t kBlock = 4096;  // floats that a thread adds up at a time

static_assert(std::atomic<uint32_t>::is_always_lock_free && sizeof(std::atomic<uint32_t>) == sizeof(uint32_t));

// Sleeps while the word is `seen`, a while at most.
void sleep_while([[maybe_unused]] std::atomic<uint32_t>& word, [[maybe_unused]] uint32_t seen) {
#if defined(__linux__)
  const timespec most = {0, kSleepNanos};
  syscall(SYS_futex, &word, FUTEX_WAIT, seen, &most, nullptr, 0);
#else
  std::this_thread::sleep_for(std::chrono::nanoseconds(kSleepNanos));
#endif
}

void wake_all([[maybe_unused]] std::atomic<uint32_t>& word) {
#if defined(__linux__)
  syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
#endif
}

}  // namespace

struct Exchange::Shared {
  alignas(kLinePair) std::atomic<uint32_t> failed;    // a rank's number + 1
  alignas(kLinePair) std::atomic<uint32_t> sleeping;  // ranks that are to be woken
};

// The last turn for which a rank has written to its slot, and how many floats, of even and odd turns.
struct alignas(kLinePair) Exchange::Flag {
  std::atomic<uint32_t> turn;
  std::atomic<int64_t> counts[2];
};

int64_t Exchange::bytes(int64_t ranks) {
  require(ranks >= 1 && ranks <= kMostRanks, "there are 1 … " + std::to_string(kMostRanks) + " ranks");
  const auto head = static_cast<int64_t>(sizeof(Shared)) + ranks * static_cast<int64_t>(sizeof(Flag));
  return (head + kPage - 1) / kPage * kPage + ranks * 2 * kSlot * static_cast<int64_t>(sizeof(float));
}

Exchange::Exchange(std::span<uint8_t> memory, int64_t rank, std::vector<int> peers, double patience)
    : memory_(memory), rank_(rank), peers_(std::move(peers)), patience_(patience) {
  require(static_cast<int64_t>(memory.size()) == bytes(ranks()), "the ranks' memory has another size");
  require(reinterpret_cast<uintptr_t>(memory.data()) % kPage == 0, "the ranks' memory starts at a page");
  require(rank >= 0 && rank < ranks(), "ranks are 0 … " + std::to_string(ranks() - 1));
  require(patience >= 0, "patience is 0 s or more");
}

void Exchange::add_up(float* values, int64_t count, int threads) {
  for (int64_t at = 0; at < count; at += kSlot) {
    float* sums = values + at;
    const int64_t some = std::min(kSlot, count - at), blocks = (some + kBlock - 1) / kBlock;
    const auto for_blocks = [&](const auto& work) {
      parallel_for(blocks, blocks > 2 ? threads : 1,
                   [&](int, int64_t block) { work(block * kBlock, std::min(some, (block + 1) * kBlock)); });
    };
    begin_turn();
    float* own = slot(rank_);
    for_blocks([&](int64_t first, int64_t end) { std::copy(sums + first, sums + end, own + first); });
    publish(some);
    for (int64_t rank = 0; rank < ranks(); ++rank) wait_for(rank, some);
    for_blocks([&](int64_t first, int64_t end) {
      std::copy(slot(0) + first, slot(0) + end, sums + first);
      for (int64_t rank = 1; rank < ranks(); ++rank) {
        const float* more = slot(rank);
        for (int64_t i = first; i < end; ++i) sums[i] += more[i];
      }
    });
  }
}

// As many rows in a turn as the widest part leaves room for, or a piece of one.
void Exchange::gather(const float* part, int64_t rows, std::span<const int64_t> bounds, float* whole) {
  require(static_cast<int64_t>(bounds.size()) == ranks() + 1 && std::ranges::is_sorted(bounds), "ranks have bounds");
  const auto width = [&](int64_t rank) { return bounds[size(rank) + 1] - bounds[size(rank)]; };
  int64_t widest = 1;
  for (int64_t rank = 0; rank < ranks(); ++rank) widest = std::max(widest, width(rank));
  const int64_t columns = std::min(widest, kSlot), most = kSlot / columns;
  for (int64_t row = 0; row < rows; row += most) {
    const int64_t count = std::min(most, rows - row);
    for (int64_t column = 0; column < widest; column += columns) {
      const auto here = [&](int64_t rank) { return std::clamp<int64_t>(width(rank) - column, 0, columns); };
      begin_turn();
      for (int64_t i = 0; i < count; ++i) {
        std::copy_n(part + (row + i) * width(rank_) + column, here(rank_), slot(rank_) + i * here(rank_));
      }
      publish(count * here(rank_));
      for (int64_t rank = 0; rank < ranks(); ++rank) {
        wait_for(rank, count * here(rank));
        for (int64_t i = 0; whole && i < count; ++i) {
          float* to = whole + (row + i) * bounds.back() + bounds[size(rank)] + column;
          std::copy_n(slot(rank) + i * here(rank), here(rank), to);
        }
      }
    }
  }
}

Exchange::Shared& Exchange::shared() const { return *reinterpret_cast<Shared*>(memory_.data()); }

Exchange::Flag& Exchange::flag(int64_t rank) const {
  return reinterpret_cast<Flag*>(memory_.data() + sizeof(Shared))[rank];
}

// Of this turn.
float* Exchange::slot(int64_t rank) const {
  auto* slots = reinterpret_cast<float*>(memory_.data() + memory_.size()) - ranks() * 2 * kSlot;
  return slots + (rank * 2 + turn_ % 2) * kSlot;
}

void Exchange::publish(int64_t count) {
  throw_if_failed();
  Flag& own = flag(rank_);
  own.counts[turn_ % 2].store(count, std::memory_order_relaxed);
  own.turn.store(turn_);
  if (shared().sleeping.load()) wake_all(own.turn);
}

// Patience counts sleeps: what a clock says while this process is stopped itself is nobody's delay.
void Exchange::wait_for(int64_t rank, int64_t count) {
  Flag& other = flag(rank);
  const auto has_come = [&](uint32_t seen) { return static_cast<int32_t>(seen - turn_) >= 0; };
  for (int64_t spins = 0; !has_come(other.turn.load(std::memory_order_acquire)); ++spins) {
    throw_if_failed();
    if (static_cast<double>((spins - kSpins) * kSleepNanos) > patience_ * 1e9)
      give_up(rank, "does not answer: it hangs");
    const uint32_t seen = other.turn.load();
    spins < kSpins ? spin_or_yield(spins) : has_come(seen) ? void() : sleep(other, seen);
  }
  if (other.counts[turn_ % 2].load(std::memory_order_relaxed) != count) give_up(rank, "is at another step");
}

void Exchange::sleep(Flag& flag, uint32_t seen) {
  shared().sleeping.fetch_add(1);
  sleep_while(flag.turn, seen);
  shared().sleeping.fetch_sub(1);
  look_for_ended();
}

void Exchange::look_for_ended() {
  std::vector<pollfd> ends;
  for (int peer : peers_) ends.push_back({peer, 0, 0});
  if (poll(ends.data(), static_cast<nfds_t>(ends.size()), 0) <= 0) return;
  for (size_t rank = 0; rank < ends.size(); ++rank) {
    if (ends[rank].revents & (POLLHUP | POLLERR | POLLNVAL)) return fail(static_cast<int64_t>(rank));
  }
}

void Exchange::throw_if_failed() const {
  const uint32_t failed = shared().failed.load();
  if (failed) throw std::runtime_error("rank " + std::to_string(failed - 1) + " has failed, or its process has ended");
}

void Exchange::give_up(int64_t rank, const std::string& why) {
  fail(rank);
  throw std::runtime_error("rank " + std::to_string(rank) + " " + why);
}

// The first one counts.
void Exchange::fail(int64_t rank) {
  uint32_t none = 0;
  shared().failed.compare_exchange_strong(none, static_cast<uint32_t>(rank + 1));
  for (int64_t one = 0; one < ranks(); ++one) wake_all(flag(one).turn);
}

}  // namespace tilepress
