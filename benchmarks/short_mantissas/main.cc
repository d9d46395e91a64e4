// Variants of multiplying int4 weights with activations of one to four bits and a sign, on NEON: whether a short
// mantissa can buy time. Each has its own layout of the same 4096 × 4096 weights, is checked against plain loops, and
// is timed for one row and for many, in CPU time of one thread, weights rotating through more memory than caches hold.
// Prints lines: variant, mantissa, rows, share of activations that are zero, microseconds a call (median). See
// docs/short-mantissas.md.
#include <time.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

#include "bit_serial.h"
#include "dots.h"
#include "problem.h"
#include "tables.h"

namespace short_mantissas {
namespace {

constexpr int kCopies = 6;

// Normal values, or products of two, which have more small ones; truncated under the largest exponent of a segment.
Row make_row(int mantissa, bool heavy, std::mt19937& chance) {
  std::normal_distribution<float> normal;
  Row row;
  for (int segment = 0; segment < kSegments; ++segment) {
    float values[kSegment], largest = 0;
    for (float& value : values) {
      value = normal(chance) * (heavy ? normal(chance) : 1.0f);
      largest = std::max(largest, std::abs(value));
    }
    const int power = std::ilogb(largest) - (mantissa - 1);
    row.units[segment] = std::ldexp(1.0f, power);
    for (int i = 0; i < kSegment; ++i) {
      row.x[segment * kSegment + i] = static_cast<int8_t>(std::ldexp(values[i], -power));
    }
  }
  return row;
}

Problem make_problem(std::mt19937& chance) {
  Problem problem;
  for (int64_t i = 0; i < int64_t{kNeurons} * kInputs; ++i) {
    problem.weights.push_back(static_cast<int8_t>(static_cast<int>(chance() % 16) - 8));
  }
  for (int i = 0; i < kNeurons * kSegments; ++i) problem.scales.push_back(0.01f * static_cast<float>(1 + chance() % 9));
  return problem;
}

std::vector<float> plain(const Problem& problem, const Row& row) {
  std::vector<float> y(kNeurons);
  for (int neuron = 0; neuron < kNeurons; ++neuron) {
    for (int segment = 0; segment < kSegments; ++segment) {
      int dot = 0;
      for (int i = segment * kSegment; i < (segment + 1) * kSegment; ++i) dot += problem.at(neuron, i) * row.x[i];
      float& sum = y[static_cast<size_t>(neuron)];
      sum = std::fma(static_cast<float>(dot) * row.units[segment],
                     problem.scales[static_cast<size_t>(neuron) * kSegments + static_cast<size_t>(segment)], sum);
    }
  }
  return y;
}

double cpu_seconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// All rows through a block of neurons before the next, so that its weights are near for all but the first.
template <class Variant, int mantissa>
void layer(const Weights& weights, const std::vector<Row>& rows, std::vector<float>& y) {
  std::vector<typename Variant::X> ready;
  for (const Row& row : rows) ready.emplace_back(row, mantissa);
  for (size_t first = 0; first < kNeurons; first += Variant::kBlock) {
    const Block block = {weights.packed.data() + first * kInputs / 2, weights.scales.data() + first * kSegments};
    for (size_t row = 0; row < rows.size(); ++row) {
      Variant::template multiply<mantissa>(block, ready[row], y.data() + row * kNeurons + first);
    }
  }
}

template <class Variant, int mantissa>
void measure(const Problem& problem, const std::vector<Row>& rows, int calls) {
  const Bytes packed = Variant::pack(problem);
  const std::vector<float> scales = problem.scales_by(Variant::kBlock);
  std::vector<Weights> copies;
  for (int copy = 0; copy < kCopies; ++copy) copies.push_back({HugePages(packed), HugePages(scales)});
  std::vector<float> y(rows.size() * kNeurons);
  layer<Variant, mantissa>(copies[0], rows, y);
  const std::vector<float> expected = plain(problem, rows[0]);
  if (!std::equal(expected.begin(), expected.end(), y.begin())) {
    std::fprintf(stderr, "%s, %d bits: wrong\n", Variant::kName, mantissa);
    std::exit(1);
  }
  std::vector<double> times;
  for (int call = 0; call < calls; ++call) {
    const double start = cpu_seconds();
    layer<Variant, mantissa>(copies[static_cast<size_t>(call % kCopies)], rows, y);
    times.push_back(cpu_seconds() - start);
  }
  std::nth_element(times.begin(), times.begin() + calls / 2, times.end());
  const auto zeros = std::count(rows[0].x, rows[0].x + kInputs, 0);
  std::printf("%s;%d;%zu;%.3f;%.1f\n", Variant::kName, mantissa, rows.size(), static_cast<double>(zeros) / kInputs,
              1e6 * times[static_cast<size_t>(calls / 2)]);
  std::fflush(stdout);
}

template <int mantissa>
void measure_all(const Problem& problem, int batch, bool heavy, int calls, std::mt19937& chance) {
  std::vector<Row> rows;
  for (int row = 0; row < batch; ++row) rows.push_back(make_row(mantissa, heavy, chance));
  measure<Dots<false>, mantissa>(problem, rows, calls);
  measure<Dots<true>, mantissa>(problem, rows, calls);
  measure<BitSerial, mantissa>(problem, rows, calls);
  measure<SumTables, mantissa>(problem, rows, calls);
  measure<ProductTables, mantissa>(problem, rows, calls);
}

}  // namespace
}  // namespace short_mantissas

// Arguments: rows, calls, "normal" or "heavy".
int main(int count, char** arguments) {
  if (count != 4) return std::fprintf(stderr, "rows calls normal|heavy\n"), 2;
  std::mt19937 chance(1);
  const auto problem = short_mantissas::make_problem(chance);
  const int batch = std::atoi(arguments[1]), calls = std::atoi(arguments[2]);
  const bool heavy = std::strcmp(arguments[3], "heavy") == 0;
  short_mantissas::measure_all<1>(problem, batch, heavy, calls, chance);
  short_mantissas::measure_all<2>(problem, batch, heavy, calls, chance);
  short_mantissas::measure_all<3>(problem, batch, heavy, calls, chance);
  short_mantissas::measure_all<4>(problem, batch, heavy, calls, chance);
}
