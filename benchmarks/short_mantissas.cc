// Ways to multiply int4 weights with activations of one to four bits and a sign, on NEON: whether a short mantissa can
// buy time. Each way has its own layout of the same 4096 × 4096 weights, is checked against plain loops, and is timed
// for one row and for many, in CPU time of one thread, weights rotating through more memory than caches hold.
// Prints lines: way, mantissa, rows, share of activations that are zero, microseconds a call (median). See
// docs/short-mantissas.md.
#include <arm_neon.h>
#include <sys/mman.h>
#include <time.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

namespace {

constexpr int kInputs = 4096, kNeurons = 4096;
constexpr int kSegment = 64, kSegments = kInputs / kSegment;  // share a scale, and an exponent of activations
constexpr int kCopies = 6;

using Bytes = std::vector<uint8_t>;

// weights [neurons][inputs], -8 … 7; scales [neurons][segments].
struct Problem {
  std::vector<int8_t> weights;
  std::vector<float> scales;

  int at(int neuron, int input) const {
    return weights[static_cast<size_t>(neuron) * kInputs + static_cast<size_t>(input)];
  }
  // Of a block of neurons after another: [segments][block].
  std::vector<float> scales_by(int block) const {
    std::vector<float> ordered;
    for (int first = 0; first < kNeurons; first += block) {
      for (int segment = 0; segment < kSegments; ++segment) {
        for (int neuron = first; neuron < first + block; ++neuron) {
          ordered.push_back(scales[static_cast<size_t>(neuron) * kSegments + static_cast<size_t>(segment)]);
        }
      }
    }
    return ordered;
  }
};

// A row of activations in block floating point: integers, and what 1 stands for in each segment.
struct Row {
  int8_t x[kInputs];
  float units[kSegments];
};

uint8_t nibbles(int low, int high) { return static_cast<uint8_t>((low & 15) | (high & 15) << 4); }

// Memory in huge pages, where the system has them, as the package has its weights.
template <class Number>
class Kept {
 public:
  explicit Kept(const std::vector<Number>& values) {
    constexpr size_t kPage = size_t{2} << 20;
    const size_t bytes = values.size() * sizeof(Number), room = (bytes + kPage - 1) / kPage * kPage;
    memory_.reset(std::aligned_alloc(kPage, room));
    madvise(memory_.get(), room, MADV_HUGEPAGE);
    std::memcpy(memory_.get(), values.data(), bytes);
  }
  const Number* data() const { return static_cast<const Number*>(memory_.get()); }

 private:
  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };
  std::unique_ptr<void, Free> memory_;
};

// Weights as one of the ways packs them, and those of a block.
struct Weights {
  Kept<uint8_t> packed;
  Kept<float> scales;
};

struct Block {
  const uint8_t* packed;
  const float* scales;
};

float32x4_t finish(int32x4_t dots, float unit, const float* scales, float32x4_t sums) {
  return vfmaq_f32(sums, vmulq_n_f32(vcvtq_f32_s32(dots), unit), vld1q_f32(scales));
}

// What is read of a block is known from the activations, and so can be asked for in time, those of the next block too:
// `count` places further on the list begins anew.
constexpr int kAhead = 24;

void look_ahead(std::vector<int>& list, int count) {
  for (size_t i = 0; i < kAhead; ++i) list.push_back(list[i] + count);
}

// 1. Dot products of bytes, as the package has them: eight inputs of sixteen neurons are 64 bytes, four inputs in low
// and four in high nibbles. With `skip`, eight inputs that are all zero are neither read nor multiplied.
template <bool skip>
struct Dots {
  static constexpr const char* kName = skip ? "dots of bytes, zeros skipped by eights" : "dots of bytes";
  static constexpr int kBlock = 16;

  struct X {
    X(const Row& row, int) : row(row) {
      for (int eight = 0; eight < kInputs / 8; ++eight) {
        if (eight % (kSegment / 8) == 0) begins[eight / (kSegment / 8)] = static_cast<int>(eights.size());
        const bool used = std::any_of(row.x + 8 * eight, row.x + 8 * eight + 8, [](int8_t x) { return x; });
        if (used || !skip) eights.push_back(eight);
      }
      begins[kSegments] = static_cast<int>(eights.size());
      look_ahead(eights, kInputs / 8);
    }
    const Row& row;
    std::vector<int> eights;
    int begins[kSegments + 1];
  };

  static Bytes pack(const Problem& problem) {
    Bytes packed;
    for (int block = 0; block < kNeurons; block += kBlock) {
      for (int input = 0; input < kInputs; input += 8) {
        for (int byte = 0; byte < 64; ++byte) {
          const int neuron = block + byte / 4, first = input + byte % 4;
          packed.push_back(nibbles(problem.at(neuron, first), problem.at(neuron, first + 4)));
        }
      }
    }
    return packed;
  }

  template <int mantissa>
  static void multiply(const Block& block, const X& x, float* y) {
    const uint8_t* packed = block.packed;
    float32x4_t totals[kBlock / 4] = {};
    for (int segment = 0; segment < kSegments; ++segment) {
      if (x.begins[segment] == x.begins[segment + 1]) continue;
      int32x4_t sums[4] = {};
      for (int i = x.begins[segment]; i < x.begins[segment + 1]; ++i) {
        const int eight = skip ? x.eights[i] : i, later = skip ? x.eights[i + kAhead] : i + kAhead;
        const int8x16_t lanes = vcombine_s8(vld1_s8(x.row.x + 8 * eight), vdup_n_s8(0));
        const uint8_t* from = packed + 64 * eight;
        __builtin_prefetch(packed + 64 * later);
        for (int quarter = 0; quarter < 4; ++quarter, from += 16) {
          const uint8x16_t pairs = vld1q_u8(from);
          const int8x16_t low = vreinterpretq_s8_u8(vshlq_n_u8(pairs, 4));
          const int8x16_t high = vreinterpretq_s8_u8(vandq_u8(pairs, vdupq_n_u8(0xf0)));
          sums[quarter] = vdotq_laneq_s32(sums[quarter], low, lanes, 0);
          sums[quarter] = vdotq_laneq_s32(sums[quarter], high, lanes, 1);
        }
      }
      for (int quarter = 0; quarter < 4; ++quarter) {
        const float* scales = block.scales + segment * kBlock + 4 * quarter;
        totals[quarter] = finish(vshrq_n_s32(sums[quarter], 4), x.row.units[segment], scales, totals[quarter]);
      }
    }
    std::memcpy(y, totals, sizeof(totals));
  }
};

// 2. Bit by bit: 64 inputs of a neuron are four words, one of each bit. Every pair of planes is an `and` and a count of
// ones, once for positive and once for negative activations.
struct BitSerial {
  static constexpr const char* kName = "bit planes, ones counted";
  static constexpr int kBlock = 16;

  struct X {
    X(const Row& row, int mantissa) : row(row) {
      for (int input = 0; input < kInputs; ++input) {
        const int value = row.x[input], segment = input / kSegment;
        for (int bit = 0; bit < mantissa; ++bit) {
          const uint64_t one = static_cast<uint64_t>(std::abs(value) >> bit & 1) << input % kSegment;
          planes[segment][value < 0][bit] |= one;
        }
      }
    }
    const Row& row;
    uint64_t planes[kSegments][2][4] = {};
  };

  static Bytes pack(const Problem& problem) {
    std::vector<uint64_t> words;
    for (int block = 0; block < kNeurons; block += kBlock) {
      for (int first = 0; first < kInputs; first += kSegment) {
        for (int bit = 3; bit >= 0; --bit) {
          for (int neuron = block; neuron < block + kBlock; ++neuron) {
            uint64_t word = 0;
            for (int i = 0; i < kSegment; ++i) {
              word |= static_cast<uint64_t>(problem.at(neuron, first + i) >> bit & 1) << i;
            }
            words.push_back(word);
          }
        }
      }
    }
    Bytes packed(words.size() * 8);
    std::memcpy(packed.data(), words.data(), packed.size());
    return packed;
  }

  // Ones of each byte under all planes, the most significant first.
  template <int mantissa>
  static uint8x16_t count(uint64x2_t weights, const uint64x2_t* planes) {
    uint8x16_t sum = vdupq_n_u8(0);
    for (int bit = mantissa - 1; bit >= 0; --bit) {
      const uint8x16_t ones = vcntq_u8(vreinterpretq_u8_u64(vandq_u64(weights, planes[bit])));
      sum = bit == mantissa - 1 ? ones : vaddq_u8(vaddq_u8(sum, sum), ones);
    }
    return sum;
  }

  template <int mantissa>
  static void multiply(const Block& block, const X& x, float* y) {
    const uint8_t* packed = block.packed;
    float32x4_t totals[kBlock / 4] = {};
    for (int segment = 0; segment < kSegments; ++segment, packed += 8 * 4 * kBlock) {
      uint64x2_t positive[mantissa], negative[mantissa];
      for (int bit = 0; bit < mantissa; ++bit) {
        positive[bit] = vdupq_n_u64(x.planes[segment][0][bit]);
        negative[bit] = vdupq_n_u64(x.planes[segment][1][bit]);
      }
      __builtin_prefetch(packed + 2048);
      int32x4_t halves[8];
      for (int pair = 0; pair < 8; ++pair) {
        int16x8_t sum = vdupq_n_s16(0);
        for (int bit = 3; bit >= 0; --bit) {
          const uint64x2_t weights = vreinterpretq_u64_u8(vld1q_u8(packed + 128 * (3 - bit) + 16 * pair));
          const uint8x16_t more = count<mantissa>(weights, positive), less = count<mantissa>(weights, negative);
          const int16x8_t ones = vpaddlq_s8(vreinterpretq_s8_u8(vsubq_u8(more, less)));
          sum = bit == 3 ? vnegq_s16(ones) : vaddq_s16(vaddq_s16(sum, sum), ones);
        }
        halves[pair] = vpaddlq_s16(sum);
      }
      for (int quarter = 0; quarter < 4; ++quarter) {
        const int32x4_t dots = vpaddq_s32(halves[2 * quarter], halves[2 * quarter + 1]);
        const float* scales = block.scales + segment * kBlock + 4 * quarter;
        totals[quarter] = finish(dots, x.row.units[segment], scales, totals[quarter]);
      }
    }
    std::memcpy(y, totals, sizeof(totals));
  }
};

// How many products or table entries of at most `largest` an int8 adds up.
constexpr int fit_int8(int largest) { return 127 / largest; }

// 3. Tables of sums: four activations have sixteen sums, which with at most four bits fit int8; one bit of four weights
// is the number of one of them. Sixteen neurons look up at once.
struct SumTables {
  static constexpr const char* kName = "tables of sums, looked up by weights' bits";
  static constexpr int kBlock = 32;

  struct X {
    X(const Row& row, int) : row(row) {
      for (int i = 0; i < 16 * kInputs / 4; ++i) {
        int sum = 0;
        for (int j = 0; j < 4; ++j) sum += (i >> j & 1) * row.x[i / 16 * 4 + j];
        tables[i / 16][i % 16] = static_cast<int8_t>(sum);
      }
    }
    const Row& row;
    int8_t tables[kInputs / 4][16];
  };

  static Bytes pack(const Problem& problem) {
    Bytes packed;
    for (int block = 0; block < kNeurons; block += kBlock) {
      for (int first = 0; first < kInputs; first += kSegment) {
        for (int bit = 3; bit >= 0; --bit) {
          for (int four = first; four < first + kSegment; four += 4) {
            const auto number = [&](int neuron) {
              int bits = 0;
              for (int i = 0; i < 4; ++i) bits |= (problem.at(neuron, four + i) >> bit & 1) << i;
              return bits;
            };
            for (int i = 0; i < 16; ++i) packed.push_back(nibbles(number(block + i), number(block + 16 + i)));
          }
        }
      }
    }
    return packed;
  }

  template <int mantissa>
  static void multiply(const Block& block, const X& x, float* y) {
    const uint8_t* packed = block.packed;
    float32x4_t totals[kBlock / 4] = {};
    constexpr int kTogether = std::min(16, fit_int8(4 * ((1 << mantissa) - 1)) & ~1);
    for (int segment = 0; segment < kSegments; ++segment) {
      int16x8_t sums[4] = {};
      for (int bit = 3; bit >= 0; --bit) {
        int16x8_t plane[4] = {};
        for (int four = 0; four < 16;) {
          int8x16_t low = vdupq_n_s8(0), high = vdupq_n_s8(0);
          for (const int end = std::min(16, four + kTogether); four < end; ++four, packed += 16) {
            const int8x16_t table = vld1q_s8(x.tables[16 * segment + four]);
            const uint8x16_t numbers = vld1q_u8(packed);
            __builtin_prefetch(packed + 1024);
            low = vaddq_s8(low, vqtbl1q_s8(table, vandq_u8(numbers, vdupq_n_u8(15))));
            high = vaddq_s8(high, vqtbl1q_s8(table, vshrq_n_u8(numbers, 4)));
          }
          plane[0] = vaddw_s8(plane[0], vget_low_s8(low)), plane[1] = vaddw_high_s8(plane[1], low);
          plane[2] = vaddw_s8(plane[2], vget_low_s8(high)), plane[3] = vaddw_high_s8(plane[3], high);
        }
        for (int i = 0; i < 4; ++i) {
          sums[i] = bit == 3 ? vnegq_s16(plane[i]) : vaddq_s16(vaddq_s16(sums[i], sums[i]), plane[i]);
        }
      }
      for (int i = 0; i < 4; ++i) {
        const float* scales = block.scales + segment * kBlock + 8 * i;
        float32x4_t &low = totals[2 * i], &high = totals[2 * i + 1];
        low = finish(vmovl_s16(vget_low_s16(sums[i])), x.row.units[segment], scales, low);
        high = finish(vmovl_high_s16(sums[i]), x.row.units[segment], scales + 4, high);
      }
    }
    std::memcpy(y, totals, sizeof(totals));
  }
};

// 4. Tables of products: an activation has sixteen products with int4, which with at most four bits fit int8. Weights
// of an input lie side by side, 128 neurons in 64 bytes, so that those of activations that are zero are never read.
struct ProductTables {
  static constexpr const char* kName = "tables of products, zeros skipped";
  static constexpr int kBlock = 128;

  struct X {
    X(const Row& row, int) : row(row) {
      for (int input = 0; input < kInputs; ++input) {
        if (input % kSegment == 0) begins[input / kSegment] = static_cast<int>(inputs.size());
        if (row.x[input]) inputs.push_back(input);
      }
      begins[kSegments] = static_cast<int>(inputs.size());
      look_ahead(inputs, kInputs);
      for (int i = 0; i < 31 * 16; ++i) {
        tables[i / 16][i % 16] = static_cast<int8_t>((i / 16 - 15) * (i % 16 < 8 ? i % 16 : i % 16 - 16));
      }
    }
    const int8_t* table(int input) const { return tables[row.x[input] + 15]; }
    const Row& row;
    std::vector<int> inputs;
    int begins[kSegments + 1];
    int8_t tables[31][16];
  };

  static Bytes pack(const Problem& problem) {
    Bytes packed;
    for (int block = 0; block < kNeurons; block += kBlock) {
      for (int input = 0; input < kInputs; ++input) {
        for (int byte = 0; byte < 64; ++byte) {
          const int neuron = block + byte / 16 * 32 + byte % 16;
          packed.push_back(nibbles(problem.at(neuron, input), problem.at(neuron + 16, input)));
        }
      }
    }
    return packed;
  }

  // The products of `count` activations, added up as bytes.
  template <int count>
  [[gnu::always_inline]] static void add(const uint8_t* packed, const X& x, int first, int16x8_t (&sums)[8]) {
    for (int i = 0; i < count; ++i) __builtin_prefetch(packed + 64 * x.inputs[first + i + kAhead]);
    for (int part = 0; part < 2; ++part) {
      int8x16_t low, high;
      for (int i = 0; i < count; ++i) {
        const int input = x.inputs[first + i];
        const int8x16_t table = vld1q_s8(x.table(input));
        const uint8x16_t pairs = vld1q_u8(packed + 64 * input + 16 * part);
        const int8x16_t lower = vqtbl1q_s8(table, vandq_u8(pairs, vdupq_n_u8(15)));
        const int8x16_t upper = vqtbl1q_s8(table, vshrq_n_u8(pairs, 4));
        low = i ? vaddq_s8(low, lower) : lower;
        high = i ? vaddq_s8(high, upper) : upper;
      }
      int16x8_t* to = sums + 4 * part;
      to[0] = vaddw_s8(to[0], vget_low_s8(low)), to[1] = vaddw_high_s8(to[1], low);
      to[2] = vaddw_s8(to[2], vget_low_s8(high)), to[3] = vaddw_high_s8(to[3], high);
    }
  }

  template <int mantissa>
  static void multiply(const Block& block, const X& x, float* y) {
    const uint8_t* packed = block.packed;
    float32x4_t totals[kBlock / 4] = {};
    constexpr int kTogether = fit_int8(8 * ((1 << mantissa) - 1));
    for (int segment = 0; segment < kSegments; ++segment) {
      if (x.begins[segment] == x.begins[segment + 1]) continue;
      for (int side = 0; side < 2; ++side) {  // of 64 neurons: for all 128 there are not registers enough
        int16x8_t sums[8] = {};
        int i = x.begins[segment];
        const int end = x.begins[segment + 1];
        for (; i + kTogether <= end; i += kTogether) add<kTogether>(packed + 32 * side, x, i, sums);
        for (; i < end; ++i) add<1>(packed + 32 * side, x, i, sums);
        for (i = 0; i < 8; ++i) {
          const float* scales = block.scales + segment * kBlock + 64 * side + 8 * i;
          float32x4_t &low = totals[16 * side + 2 * i], &high = totals[16 * side + 2 * i + 1];
          low = finish(vmovl_s16(vget_low_s16(sums[i])), x.row.units[segment], scales, low);
          high = finish(vmovl_high_s16(sums[i]), x.row.units[segment], scales + 4, high);
        }
      }
    }
    std::memcpy(y, totals, sizeof(totals));
  }
};

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
template <class Way, int mantissa>
void layer(const Weights& weights, const std::vector<Row>& rows, std::vector<float>& y) {
  std::vector<typename Way::X> ready;
  for (const Row& row : rows) ready.emplace_back(row, mantissa);
  for (size_t first = 0; first < kNeurons; first += Way::kBlock) {
    const Block block = {weights.packed.data() + first * kInputs / 2, weights.scales.data() + first * kSegments};
    for (size_t row = 0; row < rows.size(); ++row) {
      Way::template multiply<mantissa>(block, ready[row], y.data() + row * kNeurons + first);
    }
  }
}

template <class Way, int mantissa>
void measure(const Problem& problem, const std::vector<Row>& rows, int calls) {
  const Bytes packed = Way::pack(problem);
  const std::vector<float> scales = problem.scales_by(Way::kBlock);
  std::vector<Weights> copies;
  for (int copy = 0; copy < kCopies; ++copy) copies.push_back({Kept(packed), Kept(scales)});
  std::vector<float> y(rows.size() * kNeurons);
  layer<Way, mantissa>(copies[0], rows, y);
  const std::vector<float> expected = plain(problem, rows[0]);
  if (!std::equal(expected.begin(), expected.end(), y.begin())) {
    std::fprintf(stderr, "%s, %d bits: wrong\n", Way::kName, mantissa);
    std::exit(1);
  }
  std::vector<double> times;
  for (int call = 0; call < calls; ++call) {
    const double start = cpu_seconds();
    layer<Way, mantissa>(copies[static_cast<size_t>(call % kCopies)], rows, y);
    times.push_back(cpu_seconds() - start);
  }
  std::nth_element(times.begin(), times.begin() + calls / 2, times.end());
  const auto zeros = std::count(rows[0].x, rows[0].x + kInputs, 0);
  std::printf("%s;%d;%zu;%.3f;%.1f\n", Way::kName, mantissa, rows.size(), static_cast<double>(zeros) / kInputs,
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

// Arguments: rows, calls, "normal" or "heavy".
int main(int count, char** arguments) {
  if (count != 4) return std::fprintf(stderr, "rows calls normal|heavy\n"), 2;
  std::mt19937 chance(1);
  const Problem problem = make_problem(chance);
  const int batch = std::atoi(arguments[1]), calls = std::atoi(arguments[2]);
  const bool heavy = std::strcmp(arguments[3], "heavy") == 0;
  measure_all<1>(problem, batch, heavy, calls, chance);
  measure_all<2>(problem, batch, heavy, calls, chance);
  measure_all<3>(problem, batch, heavy, calls, chance);
  measure_all<4>(problem, batch, heavy, calls, chance);
}
