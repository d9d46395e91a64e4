#include "engine/packed_attention.h"

#include <algorithm>
#include <exception>
#include <limits>
#include <mutex>

#include "dispatch/checks.h"
#include "dispatch/matrix.h"
#include "dispatch/parallel.h"
#include "engine/rows.h"

namespace tilepress {
namespace {

// Tokens' heads to heads' tokens, or back: [outer, inner, dim] to [inner, outer, dim].
void transpose(const float* from, int64_t outer, int64_t inner, int64_t dim, float* to, int threads) {
  for_rows(outer, threads, [&](int64_t i) {
    for (int64_t j = 0; j < inner; ++j) std::copy_n(from + (i * inner + j) * dim, dim, to + (j * outer + i) * dim);
  });
}

// What is thrown on threads that must not throw: the first of it.
class Thrown {
 public:
  template <class Work>
  void guard(const Work& work) {
    try {
      work();
    } catch (...) {
      const std::lock_guard lock(mutex_);
      if (!first_) first_ = std::current_exception();
    }
  }
  void rethrow() const {
    if (first_) std::rethrow_exception(first_);
  }

 private:
  std::mutex mutex_;
  std::exception_ptr first_;
};

}  // namespace

void PackedAttention::attend(int64_t layer, const AttentionHeads& heads, std::span<const Sequence> sequences,
                             std::span<KvSequence* const> stored, const HeadRows& rows, float* out, int threads) {
  const int64_t queries = heads.heads * heads.head_dim, keys = heads.kv_heads * heads.head_dim;
  std::vector<size_t> single, several;
  for (size_t i = 0; i < sequences.size(); ++i) {
    const auto& [row, count, start, pages] = sequences[i];
    const auto is_finite = [&](const float* x, int64_t values) { return !count_bad(x + row * values, count * values); };
    if (!is_finite(rows.queries, queries) || !is_finite(rows.keys, keys) || !is_finite(rows.values, keys)) {
      stored[i]->spoil();
    }
    if (stored[i]->is_spoiled()) {
      std::fill_n(out + row * queries, count * queries, std::numeric_limits<float>::quiet_NaN());
    } else {
      (count == 1 ? single : several).push_back(i);
    }
  }
  const auto attend_one = [&](size_t i, const HeadRows& of, float* to, int workers) {
    stored[i]
        ->layer(size(layer))
        .attend({of.keys, of.values, nullptr, sequences[i].count, of.queries, heads.heads, heads.scaling, to,
                 heads.softcap, heads.sinks},
                workers);
  };
  const auto attend_single = [&](size_t i, int workers) {
    const int64_t row = sequences[i].row;
    attend_one(i, {rows.queries + row * queries, rows.keys + row * keys, rows.values + row * keys}, out + row * queries,
               workers);
  };
  // Many sequences have a thread each; few have all threads, one after the other.
  if (2 * static_cast<int64_t>(single.size()) > threads) {
    Thrown thrown;
    parallel_for(static_cast<int64_t>(single.size()), threads,
                 [&](int, int64_t i) { thrown.guard([&] { attend_single(single[size(i)], 1); }); });
    thrown.rethrow();
  } else {
    for (size_t i : single) attend_single(i, threads);
  }
  for (size_t i : several) {
    const int64_t row = sequences[i].row, count = sequences[i].count;
    floats_.resize(std::max(floats_.size(), size(2 * count * (queries + keys))));
    float *q = floats_.data(), *k = q + count * queries, *v = k + count * keys, *y = v + count * keys;
    transpose(rows.queries + row * queries, count, heads.heads, heads.head_dim, q, threads);
    transpose(rows.keys + row * keys, count, heads.kv_heads, heads.head_dim, k, threads);
    transpose(rows.values + row * keys, count, heads.kv_heads, heads.head_dim, v, threads);
    attend_one(i, {q, k, v}, y, threads);
    transpose(y, heads.heads, count, heads.head_dim, out + row * queries, threads);
  }
}

}  // namespace tilepress
