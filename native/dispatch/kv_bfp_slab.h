// Pages of a BFP store that change while many tokens of a prompt come, apart from the store: so that queries of all of
// these tokens can be answered at once, each as if the later tokens were not there.
//
// A page has two versions: wide, its tokens as they come, and narrow, all of them truncated but the initial ones. Later
// tokens change nothing else, except exponents of values while their page fills: its FP16 values are kept for that.
#pragma once

#include <vector>

#include "dispatch/kv_bfp_store.h"

namespace tilepress {

class BfpSlab {
 public:
  // `count` tokens of the step, from `first` on; those before are in the store.
  BfpSlab(const BfpKvStore& store, const KvStep& step, int64_t first, int64_t count);

  // How many tokens a slab may have, at most.
  static int64_t most_tokens(const BfpKvStore& store);

  const BfpKvStore& store;
  const KvStep& step;
  const int64_t first, count;

  int64_t before(int64_t sequence) const { return store.length(sequence) + first; }  // tokens
  int64_t after(int64_t sequence) const { return before(sequence) + count; }
  // Pages of a sequence, from first_page(); the most that a sequence has.
  int64_t first_page(int64_t sequence) const { return first_pages_[static_cast<size_t>(sequence)]; }
  int64_t end_page(int64_t sequence) const { return (after(sequence) - 1) / kKvPageTokens + 1; }
  int64_t pages() const { return pages_; }

  // For each head of all sequences, and each of its pages.
  void fill(int64_t head, int64_t page);
  void commit(int64_t head, int64_t page) const;

  // Keys (part 0) or values (part 1).
  KvUnits wide(int64_t head, int64_t page, int part) const;
  KvUnits narrow(int64_t head, int64_t page, int part) const;
  uint16_t* halves(int64_t head, int64_t page) const;  // FP16 values [32, channels] of a page that fills
  // Values of a page in which tokens from `begin` to `end` have fewer bits.
  KvOpenValues open_values(int64_t head, int64_t page, int64_t count, int64_t begin, int64_t end) const;

 private:
  struct Place {
    int64_t head, sequence, kv_head, page, first, begin, end;  // tokens: of the page, and the new ones in it
  };
  Place place(int64_t head, int64_t page) const;
  uint8_t* memory(int64_t head, int64_t page) const;
  KvUnits whole(uint8_t* from, bool lows) const;
  bool has_narrow() const { return store.truncated_later() > 0; }
  bool narrow_has_lows(int64_t page) const;
  void take_stored(const Place& place) const;
  void set_keys(const Place& place) const;
  void set_values(const Place& place) const;
  void truncate(const KvUnits& page, const Place& place, int64_t end) const;
  void commit_open_values(const Place& place) const;

  int64_t pages_ = 0, unit_bytes_, page_bytes_;
  std::vector<int64_t> first_pages_;
  KvMemory& memory_;
};

}  // namespace tilepress
