// Weights and activations, and what all variants share.
#pragma once

#include <arm_neon.h>
#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

namespace short_mantissas {

constexpr int kInputs = 4096, kNeurons = 4096;
constexpr int kSegment = 64, kSegments = kInputs / kSegment;  // share a scale, and an exponent of activations

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

inline uint8_t nibbles(int low, int high) { return static_cast<uint8_t>((low & 15) | (high & 15) << 4); }

// Memory in huge pages, where the system has them, as the package has its weights.
template <class Number>
class HugePages {
 public:
  explicit HugePages(const std::vector<Number>& values) {
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

// Weights as a variant packs them, and those of a block.
struct Weights {
  HugePages<uint8_t> packed;
  HugePages<float> scales;
};

struct Block {
  const uint8_t* packed;
  const float* scales;
};

inline float32x4_t finish(int32x4_t dots, float unit, const float* scales, float32x4_t sums) {
  return vfmaq_f32(sums, vmulq_n_f32(vcvtq_f32_s32(dots), unit), vld1q_f32(scales));
}

// What is read of a block is known from the activations, and so can be asked for in time, those of the next block too:
// `count` places further on the list begins anew.
constexpr int kAhead = 24;

inline void look_ahead(std::vector<int>& list, int count) {
  for (size_t i = 0; i < kAhead; ++i) list.push_back(list[i] + count);
}

}  // namespace short_mantissas
