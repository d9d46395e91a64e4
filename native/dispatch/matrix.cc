#include "dispatch/matrix.h"

#if defined(__linux__)
#include <malloc.h>
#endif
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <type_traits>
#include <vector>

#include "dispatch/parallel.h"
#include "dispatch/registry.h"
#include "tilepress/elementwise.h"

namespace tilepress {
namespace {

// A worker's own memory: one block of codes and keep bytes as rows, one row of weights, and what kernels
// want.
struct Scratch {
  explicit Scratch(const MatrixShape& shape)
      : codes(static_cast<size_t>(block_codes(shape.block()) * code_bytes(shape.bits))),
        keep(shape.sparse ? static_cast<size_t>(block_codes(shape.block())) : 0),
        row(static_cast<size_t>(shape.cols)) {}

  std::vector<uint8_t> codes, keep;
  std::vector<float> row;
  std::vector<uint8_t> kernel;  // only unpacking needs it
  int64_t block = -1;           // whose codes these are; only gathering looks
};

// Scratch for each worker, made by the worker that first needs it.
class Workers {
 public:
  Workers(const MatrixShape& shape, int threads) : shape_(shape), scratch_(static_cast<size_t>(std::max(threads, 1))) {}

  Scratch& operator[](int worker) {
    auto& mine = scratch_[static_cast<size_t>(worker)];
    if (mine.empty()) mine.emplace_back(shape_);
    return mine.front();
  }

 private:
  const MatrixShape& shape_;
  std::vector<std::vector<Scratch>> scratch_;
};

// Which elements of the row are kept, as 0/1; dropped weights become zero so that they do not widen a range.
void keep_row(const Weights& weights, int64_t at, int64_t cols, float* row, uint8_t* keep) {
  if (weights.keep) {
    for (int64_t i = 0; i < cols; ++i) keep[i] = weights.keep[at + i] != 0;
    for (int64_t i = 0; i < cols; ++i) row[i] = keep[i] ? row[i] : 0.0f;
  } else {
    for (int64_t i = 0; i < cols; ++i) keep[i] = row[i] != 0.0f;
  }
}

// Kept elements from `at` up to `end`. A zero of any type has no bit set but its sign.
int64_t count_nonzeros_of(const Weights& weights, int64_t at, int64_t end) {
  int64_t nonzeros = 0;
  const auto count = [&](const auto* values, auto magnitude) {
    for (int64_t i = at; i < end; ++i) nonzeros += (values[i] & magnitude) != 0;
  };
  if (weights.keep) {
    count(weights.keep, uint8_t{0xff});
  } else if (weights.type == FloatType::f32) {
    count(reinterpret_cast<const uint32_t*>(weights.data), uint32_t{0x7fffffff});
  } else {
    count(reinterpret_cast<const uint16_t*>(weights.data), uint16_t{0x7fff});
  }
  return nonzeros;
}

// Rows past the matrix' edge; columns past it are zero from the start, and nobody writes them.
void clear_padding_rows(const MatrixShape& shape, int64_t block, Scratch& mine) {
  const size_t filled = static_cast<size_t>(rows_in(shape, block) * shape.padded_cols());
  const size_t filled_bytes = filled * static_cast<size_t>(code_bytes(shape.bits));
  std::fill(mine.codes.begin() + static_cast<int64_t>(filled_bytes), mine.codes.end(), uint8_t{0});
  if (shape.sparse) std::fill(mine.keep.begin() + static_cast<int64_t>(filled), mine.keep.end(), uint8_t{0});
}

int64_t nonzeros_in(const Scratch& mine) {
  int64_t nonzeros = 0;
  for (uint8_t keep : mine.keep) nonzeros += keep;
  return nonzeros;
}

void pack_scratch(const MatrixShape& shape, const Streams& streams, KernelOf<ops::pack_tiles_codes> pack, int64_t block,
                  Scratch& mine, std::atomic<bool>& changed) {
  clear_padding_rows(shape, block, mine);
  if (!fits(shape, streams, block, nonzeros_in(mine))) {
    changed = true;
    return;
  }
  pack(shape.block(), mine.codes.data(), shape.sparse ? mine.keep.data() : nullptr,
       block_codes_at(shape, streams, block), block_mask_at(shape, streams, block));
}

void unpack_scratch(const MatrixShape& shape, const Streams& streams, KernelOf<ops::unpack_codes_tiles> unpack,
                    int64_t block, Scratch& mine, std::atomic<bool>& changed) {
  if (!fits(shape, streams, block, nonzeros_in(shape, streams, block))) {
    changed = true;
    return;
  }
  mine.kernel.resize(static_cast<size_t>(unpack_scratch_bytes(shape.block())));
  unpack(shape.block(), block_codes_at(shape, streams, block), block_mask_at(shape, streams, block), mine.codes.data(),
         mine.keep.data(), mine.kernel.data());
}

// The largest of so many codes, signs apart.
template <class Code>
Code largest_magnitude(const uint8_t* codes, int64_t bytes) {
  Code largest = 0;
  for (int64_t i = 0; i < bytes; i += sizeof(Code)) {
    Code code;
    std::memcpy(&code, codes + i, sizeof(Code));
    const Code magnitude = static_cast<Code>(code & std::numeric_limits<std::make_signed_t<Code>>::max());
    largest = std::max(largest, magnitude);
  }
  return largest;
}

// The largest weight, as fp16.
float largest_half(const MatrixShape& shape, const Format& format, const Streams& streams) {
  const int64_t bytes = block_codes_at(shape, streams, shape.blocks()) - streams.codes;
  if (format.bits == 16) return fp16_to_float(largest_magnitude<uint16_t>(streams.codes, bytes));
  if (format.bits == 8) return format.values[largest_magnitude<uint8_t>(streams.codes, bytes)] / format.half_unit;
  float largest = 0;
  for (int code = 0; code < 1 << format.bits; ++code) {
    largest = std::max(largest, std::abs(fp16_to_float(format.halves[code])));
  }
  return largest;
}

}  // namespace

int half_exponent(const MatrixShape& shape, const Format& format, const Streams& streams) {
  constexpr int kStep = 5, kMost = 2 * kStep;
  constexpr float kLargest = 1920;      // 32 times that, and what sixteen sums are rounded up by, is below 65504
  constexpr float kNotSmall = 0x1p-5f;  // products of lesser weights would leave fp16 at its other end
  if (format.half_unit == 0) return kNoHalves;
  const float largest = largest_half(shape, format, streams);
  if (has_half_range(format) && !(largest >= kNotSmall)) return kNoHalves;
  for (int exponent = kMost; exponent >= -kMost; exponent -= kStep) {
    if (std::ldexp(largest, exponent) <= kLargest) return exponent;
  }
  return kNoHalves;
}

int64_t count_bits(const uint8_t* mask, int64_t bytes) {
  int64_t count = 0;
  for (int64_t i = 0; i < bytes; i += 8) {
    uint64_t word;
    std::memcpy(&word, mask + i, 8);
    count += std::popcount(word);
  }
  return count;
}

int64_t nonzeros_in(const MatrixShape& shape, const Streams& streams, int64_t block) {
  return shape.sparse ? count_bits(block_mask_at(shape, streams, block), shape.block_mask_bytes()) : 0;
}

bool fits(const MatrixShape& shape, const Streams& streams, int64_t block, int64_t nonzeros) {
  return !shape.sparse || stream_bytes(shape.bits, nonzeros) == streams.offsets[block + 1] - streams.offsets[block];
}

void require_unchanged(const std::atomic<bool>& changed) {
  if (changed) throw std::runtime_error("offsets do not fit the kept weights: the matrix changed while it was used");
}

void count_nonzeros(const MatrixShape& shape, const Weights& weights, int threads, int64_t* counts) {
  parallel_for(shape.blocks(), threads, [&](int, int64_t block) {
    const int64_t at = block * kBlockNeurons * shape.cols;
    counts[block] = count_nonzeros_of(weights, at, at + rows_in(shape, block) * shape.cols);
  });
}

namespace {

// Calls work(scratch of the worker, block, changed) for every block; throws where one set `changed`.
template <class Work>
void for_blocks(const MatrixShape& shape, int threads, const Work& work) {
  Workers workers(shape, threads);
  std::atomic<bool> changed{false};
  parallel_for(shape.blocks(), threads, [&](int worker, int64_t block) { work(workers[worker], block, changed); });
  require_unchanged(changed);
}

}  // namespace

int64_t pack_weights(const MatrixShape& shape, const Format& format, const Weights& weights, bool scales_given,
                     const Streams& streams, int threads) {
  const auto quantize = choose<ops::quantize_any_f32>();
  const auto pack = choose<ops::pack_tiles_codes>();
  std::atomic<int64_t> bad{0};
  for_blocks(shape, threads, [&](Scratch& mine, int64_t block, std::atomic<bool>& changed) {
    float* row = mine.row.data();
    for (int neuron = 0; neuron < rows_in(shape, block); ++neuron) {
      const int64_t at = (block * kBlockNeurons + neuron) * shape.cols;
      const int64_t to = neuron * shape.padded_cols();
      load_row(weights, at, shape.cols, row);
      if (shape.sparse) keep_row(weights, at, shape.cols, row, mine.keep.data() + to);
      if (const int64_t found = count_bad(row, shape.cols)) bad += found;
      quantize(format, row, shape.cols, scales_at(shape, streams, block, neuron, scales_given),
               mine.codes.data() + to * code_bytes(shape.bits));
    }
    pack_scratch(shape, streams, pack, block, mine, changed);
  });
  return bad;
}

void pack_codes(const MatrixShape& shape, const uint8_t* codes, const uint8_t* keep, const Streams& streams,
                int threads) {
  const auto pack = choose<ops::pack_tiles_codes>();
  const int64_t bytes = code_bytes(shape.bits);
  for_blocks(shape, threads, [&](Scratch& mine, int64_t block, std::atomic<bool>& changed) {
    for (int neuron = 0; neuron < rows_in(shape, block); ++neuron) {
      const int64_t at = (block * kBlockNeurons + neuron) * shape.cols;
      const int64_t to = neuron * shape.padded_cols();
      std::memcpy(mine.codes.data() + to * bytes, codes + at * bytes, static_cast<size_t>(shape.cols * bytes));
      for (int64_t i = 0; shape.sparse && i < shape.cols; ++i)
        mine.keep[static_cast<size_t>(to + i)] = keep[at + i] != 0;
    }
    pack_scratch(shape, streams, pack, block, mine, changed);
  });
}

void unpack_codes(const MatrixShape& shape, const Streams& streams, uint8_t* codes, uint8_t* keep, int threads) {
  const auto unpack = choose<ops::unpack_codes_tiles>();
  const int64_t bytes = code_bytes(shape.bits);
  for_blocks(shape, threads, [&](Scratch& mine, int64_t block, std::atomic<bool>& changed) {
    unpack_scratch(shape, streams, unpack, block, mine, changed);
    for (int neuron = 0; neuron < rows_in(shape, block); ++neuron) {
      const int64_t at = (block * kBlockNeurons + neuron) * shape.cols;
      const int64_t from = neuron * shape.padded_cols();
      std::memcpy(codes + at * bytes, mine.codes.data() + from * bytes, static_cast<size_t>(shape.cols * bytes));
      if (keep) std::memcpy(keep + at, mine.keep.data() + from, static_cast<size_t>(shape.cols));
    }
  });
}

void unpack_weights(const MatrixShape& shape, const Format& format, const Streams& streams, float* weights,
                    int threads) {
  const auto unpack = choose<ops::unpack_codes_tiles>();
  const auto dequantize = choose<ops::dequantize_f32_any>();
  for_blocks(shape, threads, [&](Scratch& mine, int64_t block, std::atomic<bool>& changed) {
    unpack_scratch(shape, streams, unpack, block, mine, changed);
    for (int neuron = 0; neuron < rows_in(shape, block); ++neuron) {
      const int64_t from = neuron * shape.padded_cols();
      dequantize(format, mine.codes.data() + from * code_bytes(shape.bits),
                 shape.sparse ? mine.keep.data() + from : nullptr, shape.cols,
                 scales_at(shape, streams, block, neuron, true),
                 weights + (block * kBlockNeurons + neuron) * shape.cols);
    }
  });
}

namespace {

void store_row(const float* row, int64_t cols, FloatType type, uint8_t* to) {
  auto* halves = reinterpret_cast<uint16_t*>(to);
  if (type == FloatType::f32) {
    std::memcpy(to, row, static_cast<size_t>(cols) * 4);
  } else if (type == FloatType::bf16) {
    for (int64_t i = 0; i < cols; ++i) halves[i] = round_to_bf16(row[i]);
  } else {
    for (int64_t i = 0; i < cols; ++i) halves[i] = round_to_fp16(row[i]);
  }
}

}  // namespace

void gather_rows(const MatrixShape& shape, const Format& format, const Streams& streams, const int64_t* ids,
                 int64_t count, FloatType type, uint8_t* to, int threads) {
  constexpr int64_t kChunk = 16;  // ids per job; amortises its call
  const auto unpack = choose<ops::unpack_codes_tiles>();
  const auto dequantize = choose<ops::dequantize_f32_any>();
  const int64_t chunks = (count + kChunk - 1) / kChunk;
  Workers workers(shape, threads);
  std::atomic<bool> changed{false};
  parallel_for(chunks, threads, [&](int worker, int64_t chunk) {
    Scratch& mine = workers[worker];
    for (int64_t i = chunk * kChunk; i < std::min(count, (chunk + 1) * kChunk); ++i) {
      const int64_t block = ids[i] / kBlockNeurons, neuron = ids[i] % kBlockNeurons;
      if (mine.block != block) unpack_scratch(shape, streams, unpack, block, mine, changed);
      if (changed) return;
      mine.block = block;
      const int64_t from = neuron * shape.padded_cols();
      dequantize(format, mine.codes.data() + from * code_bytes(shape.bits),
                 shape.sparse ? mine.keep.data() + from : nullptr, shape.cols,
                 scales_at(shape, streams, block, static_cast<int>(neuron), true), mine.row.data());
      store_row(mine.row.data(), shape.cols, type, to + i * shape.cols * bytes_of(type));
    }
  });
  require_unchanged(changed);
}

void advise_huge_pages(const uint8_t* data, int64_t size) {
#if defined(MADV_HUGEPAGE)
  constexpr uintptr_t kPage = uintptr_t{2} << 20;
  const uintptr_t begin = (reinterpret_cast<uintptr_t>(data) + kPage - 1) / kPage * kPage;
  const uintptr_t end = (reinterpret_cast<uintptr_t>(data) + static_cast<uintptr_t>(size)) / kPage * kPage;
  if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
#endif
}

void keep_freed_memory() {
#if defined(__GLIBC__)
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
  mallopt(M_TRIM_THRESHOLD, 256 << 20);
#endif
}

double read_bandwidth(const uint8_t* data, int64_t size, bool in_parts, int threads, uint64_t* checksum) {
  // Of little, every thread has many chunks too, so that all end together.
  constexpr int64_t kLeast = 1 << 15, kMost = 1 << 20, kChunks = 32;
  const int64_t whole = std::clamp(size / (kChunks * threads) / kLeast * kLeast, kLeast, kMost);
  const auto read = choose<ops::read_u8>();
  std::atomic<uint64_t> total{0};
  const auto start = std::chrono::steady_clock::now();
  parallel_for((size + whole - 1) / whole, threads, [&](int, int64_t chunk) {
    const int64_t at = chunk * whole;
    total += read(data + at, static_cast<size_t>(std::min(whole, size - at)), in_parts);
  });
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  *checksum = total;
  return static_cast<double>(size) / elapsed.count();
}

}  // namespace tilepress
