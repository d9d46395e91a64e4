#include "engine/sampling.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>

#include "dispatch/checks.h"
#include "dispatch/parallel.h"
#include "dispatch/registry.h"

namespace tilepress {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr double kColdest = 1e-37, kHottest = 1e37;  // temperatures whose reciprocal is a normal float32

constexpr int64_t blocks_of(int64_t count) { return (count + kLogitBlock - 1) / kLogitBlock; }

void check_ids(std::span<const int64_t> ids, int64_t vocabulary) {
  for (int64_t id : ids) require(id >= 0 && id < vocabulary, "there is no token " + std::to_string(id));
}

void check(const LogitChanges& changes, int64_t vocabulary) {
  require(changes.biased.size() == changes.biases.size(), "each biased token has a bias");
  require(changes.prompt >= 0 && size(changes.prompt) <= changes.tokens.size(), "a prompt is part of the tokens");
  require(!changes.mask || changes.mask->size() == size(vocabulary), "a mask has a value for each token");
  check_ids(changes.biased, vocabulary);
  check_ids(changes.tokens, vocabulary);
}

void check(const SampleRow& row, int64_t vocabulary) {
  require(row.temperature >= 0, "a temperature is 0 or more");
  require(row.top_k >= 0, "top_k is 0 or more");
  require(row.top_p > 0 && row.top_p <= 1, "top_p is above 0 and at most 1");
  require(row.min_p >= 0 && row.min_p <= 1, "min_p is between 0 and 1");
  require(row.typical_p > 0 && row.typical_p <= 1, "typical_p is above 0 and at most 1");
  require(row.number >= 0 && row.number < 1, "a number to draw by is at least 0 and below 1");
  if (row.changes) check(*row.changes, vocabulary);
}

// A row's logits, and what is known of them.
class RowSampler {
 public:
  RowSampler(const float* logits, int64_t count, const SampleRow& row, Sampler::Scratch& scratch)
      : logits_(logits), count_(count), blocks_(blocks_of(count)), row_(row), scratch_(scratch) {}

  // Allocates nothing; `sampled.top` has room.
  void sample(SampledToken& sampled) {
    const float* const given = logits_;
    scan();
    const float most = largest_;
    if (std::isfinite(most) && row_.changes) change(*row_.changes);
    if (!std::isfinite(largest_)) {
      sampled.token = std::isfinite(most) && largest_ < 0 ? kNoneAllowed : kNotNumbers;
      return;
    }
    sampled.token = row_.temperature > 0 ? draw(weighing()) : first_largest();
    if (row_.logprobs < 0) return;
    logits_ = given;
    if (row_.changes) scan();
    add_logprobs(sampled, most);
  }

 private:
  // Sets the largest logit, NaN if one is.
  void scan() {
    choose<ops::peak_f32>()(logits_, count_, scratch_.peaks.get());
    largest_ = -kInfinity;
    for (float peak : peaks()) largest_ = peak > largest_ || peak != peak ? peak : largest_;
  }

  std::span<const float> peaks() const { return {scratch_.peaks.get(), size(blocks_)}; }
  std::span<const float> block(int64_t index) const {
    const int64_t first = index * kLogitBlock;
    return {logits_ + first, size(std::min(kLogitBlock, count_ - first))};
  }
  float score_of(float logit, const Weighing& how) const { return (logit - how.largest) * how.scale; }

  // ---- Greedy

  int64_t first_largest() const {
    const int64_t index = place_of_largest(peaks());
    return index * kLogitBlock + place_of_largest(block(index));
  }

  // The last place if it is not there, as when another thread changes logits meanwhile.
  int64_t place_of_largest(std::span<const float> values) const {
    return std::find(values.begin(), values.end() - 1, largest_) - values.begin();
  }

  // ---- Bias, penalties, mask

  void change(const LogitChanges& changes) {
    constexpr auto masked = [](float logit, uint8_t allowed) { return allowed ? logit : -kInfinity; };
    float* const logits = scratch_.changed.get();
    std::copy(logits_, logits_ + count_, logits);
    for (size_t i = 0; i < changes.biased.size(); ++i) logits[changes.biased[i]] += changes.biases[i];
    penalize(logits, changes);
    if (changes.mask) std::transform(logits, logits + count_, changes.mask->begin(), logits, masked);
    logits_ = logits;
    scan();
  }

  void penalize(float* logits, const LogitChanges& changes) {
    const auto answer = changes.tokens.subspan(size(changes.prompt));
    if (changes.repetition != 1) {
      change_once(logits, changes.tokens,
                  [&](float x) { return x < 0 ? x * changes.repetition : x / changes.repetition; });
    }
    if (changes.presence != 0) change_once(logits, answer, [&](float x) { return x - changes.presence; });
    if (changes.frequency != 0) {
      for (int64_t token : answer) logits[token] -= changes.frequency;
    }
  }

  // However often a token is there: all are read before one is written.
  template <class Change>
  void change_once(float* logits, std::span<const int64_t> tokens, const Change& changed) {
    float* const values = scratch_.scores.get();
    for (size_t i = 0; i < tokens.size(); ++i) values[i] = changed(logits[tokens[i]]);
    for (size_t i = 0; i < tokens.size(); ++i) logits[tokens[i]] = values[i];
  }

  // ---- Which tokens may be drawn

  Weighing weighing() {
    const double temperature = std::clamp(row_.temperature, kColdest, kHottest);
    Weighing how{largest_, static_cast<float>(1 / temperature), kLeastScore, 0};
    if (row_.top_k > 0 && row_.top_k < count_) keep_most_probable(how);
    if (row_.top_p < 1) keep_mass(how);
    if (row_.min_p > 0) how.least = std::max(how.least, static_cast<float>(std::log(row_.min_p)));
    if (row_.typical_p < 1) keep_typical(how);
    return how;
  }

  void keep_most_probable(Weighing& how) {
    how.least = std::max(how.least, score_of(peak(row_.top_k), how));
    const int64_t selected = select(how);
    std::fill_n(scratch_.weights.get(), blocks_of(selected) * kLogitBlock, 1.0f);
    how.least = least_of_mass(selected, static_cast<double>(row_.top_k), how.least);
  }

  // A logit that so many blocks have, or one more; minus infinity if there are fewer blocks.
  float peak(int64_t rank) {
    if (rank > blocks_) return -kInfinity;
    float* const sorted = scratch_.sums.get();
    std::copy(peaks().begin(), peaks().end(), sorted);
    std::nth_element(sorted, sorted + rank - 1, sorted + blocks_, std::greater<>());
    return sorted[rank - 1];
  }

  // All tokens below the bound together have less than the rest of the mass.
  void keep_mass(Weighing& how) {
    constexpr double kMargin = 1e-3;
    const double total = sum(how), left_out = (1 - row_.top_p) * total / static_cast<double>(count_);
    how.least = std::max(how.least, static_cast<float>(std::log(left_out) - kMargin));
    const int64_t selected = select(how);
    weigh(selected);
    how.least = least_of_mass(selected, row_.top_p * total, how.least);
  }

  void keep_typical(Weighing& how) {
    const int64_t selected = select(how);
    weigh(selected);
    float *const scores = scratch_.scores.get(), *const weights = scratch_.weights.get();
    double mass = 0, weighted = 0;
    for (int64_t i = 0; i < selected; ++i) {
      mass += weights[i];
      weighted += double{weights[i]} * scores[i];
    }
    const auto mean = static_cast<float>(weighted / mass);
    const auto nearness = [&](float score) { return -std::fabs(score - mean); };
    std::transform(scores, scores + selected, scores, nearness);
    const float least = least_of_mass(selected, row_.typical_p * mass, kLeastScore);
    select(how);
    for (int64_t i = 0; i < selected; ++i) weights[i] = nearness(scores[i]) >= least ? scores[i] : mean;
    const auto [lowest, highest] = std::minmax_element(weights, weights + selected);
    how.least = std::max(how.least, *lowest), how.most = *highest;
  }

  // The scores that count, filled up to whole blocks with such as never do.
  int64_t select(const Weighing& how) {
    float* const scores = scratch_.scores.get();
    const int64_t selected = choose<ops::select_f32>()(logits_, count_, how, scratch_.peaks.get(), scores);
    fill_up(selected);
    return selected;
  }

  void fill_up(int64_t selected) {
    float* const scores = scratch_.scores.get();
    std::fill(scores + selected, scores + blocks_of(selected) * kLogitBlock, -kInfinity);
  }

  void weigh(int64_t selected) {
    choose<ops::exp_f32>()(scratch_.scores.get(), blocks_of(selected), scratch_.weights.get());
  }

  // The highest score of those selected from which on their weights sum to `mass`; `least` if they never do. First
  // roughly, then among the scores that are left. Changes what is selected.
  float least_of_mass(int64_t selected, double mass, float least) {
    constexpr uint32_t kFine = 1 << 20;
    float *const scores = scratch_.scores.get(), *const weights = scratch_.weights.get();
    ScoreRange range{0, std::bit_cast<uint32_t>(std::fabs(least))};
    bisect(range, selected, mass, kFine);
    const double above = range.low ? sum_from(selected, score(range.low - 1)) : 0;
    selected = choose<ops::narrow_f32>()(scores, weights, blocks_of(selected), score(range.high), score(range.low));
    fill_up(selected);
    bisect(range, selected, mass - above, 0);
    return score(range.low);
  }

  // Scores are 0 or less, and ordered as the bits of their magnitudes are.
  struct ScoreRange {
    uint32_t low, high;
  };
  static float score(uint32_t bits) { return -std::bit_cast<float>(bits); }

  // Narrows a range that has the score from which on weights sum to `mass`.
  void bisect(ScoreRange& range, int64_t selected, double mass, uint32_t width) const {
    while (range.high - range.low > width) {
      const uint32_t middle = std::midpoint(range.low, range.high);
      sum_from(selected, score(middle)) < mass ? range.low = middle + 1 : range.high = middle;
    }
  }

  double sum_from(int64_t selected, float least) const {
    return choose<ops::sum_f32>()(scratch_.scores.get(), scratch_.weights.get(), blocks_of(selected), least);
  }

  // ---- Drawing one

  double sum(const Weighing& how) {
    float* const sums = scratch_.sums.get();
    choose<ops::weigh_f32>()(logits_, count_, how, scratch_.peaks.get(), sums);
    return std::accumulate(sums, sums + blocks_, 0.0);
  }

  // The first token up to which the weights sum to more than the number's share of all: its block, then its place.
  int64_t draw(const Weighing& how) {
    double target = row_.number * sum(how);
    const int64_t index = place({scratch_.sums.get(), size(blocks_)}, target);
    const auto logits = block(index);
    float scores[kLogitBlock] = {}, weights[kLogitBlock];
    for (size_t i = 0; i < logits.size(); ++i) scores[i] = score_of(logits[i], how);
    choose<ops::exp_f32>()(scores, 1, weights);
    for (size_t i = 0; i < logits.size(); ++i) {
      weights[i] = scores[i] >= how.least && scores[i] <= how.most ? weights[i] : 0;
    }
    return index * kLogitBlock + place({weights, logits.size()}, target);
  }

  // The first place up to which the weights sum to more than the target, from which those before it are subtracted.
  // Sums are rounded: the last weight that is not 0 serves all that is left.
  static int64_t place(std::span<const float> weights, double& target) {
    double before = 0, before_last = 0;
    size_t last = 0;
    for (size_t i = 0; i < weights.size() && before <= target; before += weights[i++]) {
      if (weights[i] > 0) last = i, before_last = before;
    }
    target -= before_last;
    return static_cast<int64_t>(last);
  }

  // ---- Log-probabilities

  void add_logprobs(SampledToken& sampled, float most) {
    const double total = std::log(sum({most, 1, kLeastScore, 0}));
    const auto logprob = [&](int64_t token) { return double{logits_[token] - most} - total; };
    sampled.logprob = logprob(sampled.token);
    for (int64_t token : most_probable(std::clamp<int64_t>(row_.logprobs, 0, count_))) {
      sampled.top.emplace_back(token, logprob(token));
    }
  }

  // Tokens of the highest logits, in order; of equal ones, the first.
  std::span<const int64_t> most_probable(int64_t wanted) {
    if (wanted == 0) return {};
    const float least = peak(wanted);
    int64_t *const tokens = scratch_.tokens.get(), *end = tokens;
    for (int64_t index = 0; index < blocks_; ++index) {
      if (peaks()[size(index)] < least) continue;
      for (int64_t token = index * kLogitBlock; token < std::min(count_, (index + 1) * kLogitBlock); ++token) {
        if (logits_[token] >= least) *end++ = token;
      }
    }
    const auto precedes = [&](int64_t a, int64_t b) {
      return logits_[a] != logits_[b] ? logits_[a] > logits_[b] : a < b;
    };
    std::partial_sort(tokens, tokens + wanted, end, precedes);
    return {tokens, size(wanted)};
  }

  const float* logits_;
  const int64_t count_, blocks_;
  const SampleRow& row_;
  Sampler::Scratch& scratch_;
  float largest_ = 0;
};

// Values that a row's changes or candidates need room for.
int64_t room_of(const SampleRow& row, int64_t vocabulary) {
  return std::max(vocabulary, row.changes ? static_cast<int64_t>(row.changes->tokens.size()) : 0);
}

}  // namespace

void Sampler::Scratch::reserve(int64_t count) {
  if (count <= room) return;
  const size_t values = size((blocks_of(count) + 1) * kLogitBlock), blocks = size(blocks_of(count));
  room = 0;
  for (auto* one : {&changed, &scores, &weights}) *one = std::make_unique_for_overwrite<float[]>(values);
  for (auto* one : {&peaks, &sums}) *one = std::make_unique_for_overwrite<float[]>(blocks);
  tokens = std::make_unique_for_overwrite<int64_t[]>(values);
  room = count;
}

std::vector<SampledToken> Sampler::sample(const float* logits, int64_t vocabulary, std::span<const SampleRow> rows,
                                          int threads) {
  constexpr int64_t kFew = 1 << 17;  // logits that are not worth other threads
  require(vocabulary >= 1, "there are no tokens");
  const auto count = static_cast<int64_t>(rows.size());
  const int workers = count * vocabulary < kFew ? 1 : threads;
  std::vector<SampledToken> sampled(rows.size());
  int64_t room = 0;
  for (int64_t row = 0; row < count; ++row) {
    check(rows[size(row)], vocabulary);
    room = std::max(room, room_of(rows[size(row)], vocabulary));
    sampled[size(row)].top.reserve(size(std::clamp<int64_t>(rows[size(row)].logprobs, 0, vocabulary)));
  }
  const std::lock_guard lock(sampling_);
  scratch_.resize(std::max(scratch_.size(), static_cast<size_t>(workers)));
  for (Scratch& one : scratch_) one.reserve(room);
  parallel_for(count, workers, [&](int worker, int64_t row) {
    RowSampler(logits + row * vocabulary, vocabulary, rows[size(row)], scratch_[size(worker)])
        .sample(sampled[size(row)]);
  });
  return sampled;
}

}  // namespace tilepress
