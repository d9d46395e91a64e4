// What the ranks of a model that is cut among processes tell each other, through memory that they share.
//
// Each rank has two slots, used in turn. To add up, it writes to its slot, says so, waits until the others have said
// so, and reads all slots. A slot is written again two turns later: by then, all others have said that they are done
// with the turn between, which they say after they have read it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tilepress {

// One rank's end. One thread at a time.
class Exchange {
 public:
  // Of memory, zeroed before the first rank comes, for so many ranks.
  static int64_t bytes(int64_t ranks);

  // `memory` starts at a page. `peers`: for each rank a socket whose other end is its own, by which its end is seen;
  // -1 where there is none. `patience`: seconds to wait for one rank; infinite where others see to that. Throws
  // std::invalid_argument if rank, memory and peers do not fit together.
  Exchange(std::span<uint8_t> memory, int64_t rank, std::vector<int> peers, double patience);

  int64_t rank() const { return rank_; }
  int64_t ranks() const { return static_cast<int64_t>(peers_.size()); }

  // Replaces values [count] by rank 0's + rank 1's + …, the same bits on all of them. All ranks call it with the same
  // count. Throws std::runtime_error if one has ended or failed, or did not come in time.
  void add_up(float* values, int64_t count, int threads);

  // Columns bounds[rank] … bounds[rank + 1] - 1 of `whole` [rows, bounds.back()] from part [rows, columns of them] of
  // each rank; `whole` may be null where it is not wanted. Throws as add_up does.
  void gather(const float* part, int64_t rows, std::span<const int64_t> bounds, float* whole);

  // From now on, this and all other ranks throw.
  void fail() { fail(rank_); }

 private:
  struct Shared;
  struct Flag;

  Shared& shared() const;
  Flag& flag(int64_t rank) const;
  float* slot(int64_t rank) const;
  void begin_turn() { ++turn_; }
  void publish(int64_t count);
  void wait_for(int64_t rank, int64_t count);
  void sleep(Flag& flag, uint32_t seen);
  void look_for_ended();
  void throw_if_failed() const;
  void fail(int64_t rank);
  [[noreturn]] void give_up(int64_t rank, const std::string& why);

  std::span<uint8_t> memory_;
  int64_t rank_;
  std::vector<int> peers_;
  double patience_;
  uint32_t turn_ = 0;
};

}  // namespace tilepress
