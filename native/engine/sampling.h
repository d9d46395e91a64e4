// The next token of each sequence of a step, from its logits. src/tilepress/engine/sampler_reference.py is the
// specification; src/tilepress/engine/sampling.py says what the options mean.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "tilepress/elementwise.h"

namespace tilepress {

// What is done to a row's logits before all else, in this order: biases, penalties, mask.
struct LogitChanges {
  std::span<const int64_t> biased;
  std::span<const float> biases;
  std::span<const int64_t> tokens;  // of the sequence, of which `prompt` are its prompt
  int64_t prompt;
  float repetition, presence, frequency;
  std::optional<std::span<const uint8_t>> mask;  // 0: a token is not allowed
};

struct SampleRow {
  double temperature;
  int64_t top_k;
  double top_p, min_p, typical_p;
  double number;     // of [0, 1): what is drawn
  int64_t logprobs;  // of how many tokens; -1: not that of the chosen one either
  const LogitChanges* changes;
};

// In place of a token.
inline constexpr int64_t kNotNumbers = -1, kNoneAllowed = -2;

struct SampledToken {
  int64_t token = kNotNumbers;
  double logprob = 0;
  std::vector<std::pair<int64_t, double>> top = {};
};

// Each row is computed alone, by one thread: what it gets depends neither on the others nor on how many threads there
// are. Owns the memory for that. Calls of several threads wait for each other.
class Sampler {
 public:
  // logits [rows, vocabulary]. Throws std::invalid_argument if a row does not fit the vocabulary.
  std::vector<SampledToken> sample(const float* logits, int64_t vocabulary, std::span<const SampleRow> rows,
                                   int threads);

  // What a thread needs for a row. Not touched before it is used.
  struct Scratch {
    int64_t room = 0;
    std::unique_ptr<float[]> changed, scores, weights, peaks, sums;
    std::unique_ptr<int64_t[]> tokens;

    void reserve(int64_t count);
  };

 private:
  std::vector<Scratch> scratch_;
  std::mutex sampling_;
};

}  // namespace tilepress
