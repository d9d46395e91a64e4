// Whole matrices: the loops over blocks, with their threads and scratch memory, that call kernels.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdint>
#include <cstring>

#include "tilepress/convert.h"
#include "tilepress/linear.h"

namespace tilepress {

inline int64_t bytes_of(FloatType type) { return type == FloatType::f32 ? 4 : 2; }

struct MatrixShape {
  int64_t rows, cols;
  int bits, operand_bits;
  bool sparse;
  int64_t groups;  // scales of a row; 0 where there are none
  int scale_bytes;
  bool zero_points;

  BlockShape block() const { return {bits, operand_bits, (cols + inputs() - 1) / inputs()}; }
  int inputs() const { return tile_inputs(operand_bits); }
  int64_t blocks() const { return (rows + kBlockNeurons - 1) / kBlockNeurons; }
  int64_t padded_cols() const { return block().tiles * inputs(); }
  int64_t block_code_bytes() const { return block().tiles * tile_code_bytes(bits, operand_bits); }  // dense
  int64_t block_mask_bytes() const { return sparse ? block().tiles * tile_mask_bytes(operand_bits) : 0; }
  int64_t scale_count() const { return blocks() * groups * kBlockNeurons; }
};

// The arrays of layout.py; those that a format does not have are null.
struct Streams {
  uint8_t* codes;
  uint8_t* mask;
  const int64_t* offsets;
  uint8_t* scales;
  uint8_t* zeros;
};

// A dense matrix, row after row. An element is kept where `keep` is not 0 or, without `keep`, where it is not
// zero.
struct Weights {
  const uint8_t* data;
  FloatType type;
  const uint8_t* keep;
};

// Where a block's parts lie in the streams.
inline int rows_in(const MatrixShape& shape, int64_t block) {
  return static_cast<int>(std::min<int64_t>(kBlockNeurons, shape.rows - block * kBlockNeurons));
}

inline uint8_t* block_codes_at(const MatrixShape& shape, const Streams& streams, int64_t block) {
  return streams.codes + (shape.sparse ? streams.offsets[block] : block * shape.block_code_bytes());
}

inline uint8_t* block_mask_at(const MatrixShape& shape, const Streams& streams, int64_t block) {
  return shape.sparse ? streams.mask + block * shape.block_mask_bytes() : nullptr;
}

// Some rows of a matrix, from `first` on, which begins a block.
struct Neurons {
  int64_t first, count;

  int64_t block() const { return first / kBlockNeurons; }
};

// The streams of a matrix that has these rows alone.
inline Streams streams_of(const MatrixShape& shape, const Streams& streams, const Neurons& neurons) {
  const int64_t block = neurons.block(), scale = group_index(block, shape.groups, 0);
  return {shape.sparse ? streams.codes : block_codes_at(shape, streams, block), block_mask_at(shape, streams, block),
          shape.sparse ? streams.offsets + block : nullptr,
          streams.scales ? streams.scales + scale * shape.scale_bytes : nullptr,
          streams.zeros ? streams.zeros + scale : nullptr};
}

inline GroupScales scales_at(const MatrixShape& shape, const Streams& streams, int64_t block, int neuron, bool given) {
  const int64_t at = group_index(block, shape.groups, neuron);
  return {streams.scales ? streams.scales + at * shape.scale_bytes : nullptr,
          streams.zeros ? streams.zeros + at : nullptr, given, shape.sparse};
}

// `cols` weights from `at`, as floats.
inline void load_row(const Weights& weights, int64_t at, int64_t cols, float* row) {
  const auto* halves = reinterpret_cast<const uint16_t*>(weights.data) + at;
  if (weights.type == FloatType::f32) {
    std::memcpy(row, weights.data + at * 4, static_cast<size_t>(cols) * 4);
  } else if (weights.type == FloatType::bf16) {
    for (int64_t i = 0; i < cols; ++i) row[i] = bf16_to_float(halves[i]);
  } else {
    for (int64_t i = 0; i < cols; ++i) row[i] = fp16_to_float(halves[i]);
  }
}

// Whether the exponent is all ones, by bits: comparisons would depend on how the compiler treats NaN.
inline bool is_finite(float x) { return (std::bit_cast<uint32_t>(x) & 0x7f800000) != 0x7f800000; }

// How many of the values are not finite.
inline int64_t count_bad(const float* row, int64_t cols) {
  int32_t bad = 0;
  for (int64_t i = 0; i < cols; ++i) bad += !is_finite(row[i]);
  return bad;
}

// Set bits in `bytes` bytes, a multiple of eight.
int64_t count_bits(const uint8_t* mask, int64_t bytes);

// Set bits in a block's mask, 0 for a dense matrix.
int64_t nonzeros_in(const MatrixShape& shape, const Streams& streams, int64_t block);

// Whether `nonzeros` codes fill just the bytes between the block's offsets. They do, unless somebody wrote to the
// matrix after it was counted or checked; no kernel may run on the block then, and the whole call must fail.
bool fits(const MatrixShape& shape, const Streams& streams, int64_t block, int64_t nonzeros);
void require_unchanged(const std::atomic<bool>& changed);

// Kept elements of each block.
void count_nonzeros(const MatrixShape& shape, const Weights& weights, int threads, int64_t* counts);

// Quantises and packs. Returns how many kept weights are not finite: if any, what was written means nothing.
int64_t pack_weights(const MatrixShape& shape, const Format& format, const Weights& weights, bool scales_given,
                     const Streams& streams, int threads);

// Packs codes [rows, cols], uint8_t or (16-bit formats) uint16_t; `keep` is null for a dense matrix.
void pack_codes(const MatrixShape& shape, const uint8_t* codes, const uint8_t* keep, const Streams& streams,
                int threads);

// The inverses; `keep` is null for a dense matrix.
void unpack_codes(const MatrixShape& shape, const Streams& streams, uint8_t* codes, uint8_t* keep, int threads);
void unpack_weights(const MatrixShape& shape, const Format& format, const Streams& streams, float* weights,
                    int threads);

// The rows `ids`, each from 0 to below shape.rows, as `type`: to [count, cols]. Decodes the blocks that hold them, and
// no other. The row of one id is the same whatever the others are.
void gather_rows(const MatrixShape& shape, const Format& format, const Streams& streams, const int64_t* ids,
                 int64_t count, FloatType type, uint8_t* to, int threads);

// With activations of fp16, the largest of a group being from 2^exponent to twice that, the exponent that keeps all
// sums over a tile within fp16; kNoHalves where the format is not held by it, or a weight not finite. One of a few, so
// that most matrices share it. Reads all codes of eight and sixteen bits.
inline constexpr int kNoHalves = 127;
int half_exponent(const MatrixShape& shape, const Format& format, const Streams& streams);

// Asks the system to keep these bytes in huge pages, where it has them; a wish, so nothing is said if it has not.
void advise_huge_pages(const uint8_t* data, int64_t size);

// From now on the process keeps up to 256 MiB that it has freed: a layer's activations come and go at the top of the
// heap, and given back to the system each time, they would have to be mapped and cleared anew for every layer.
void keep_freed_memory();

// Bytes a second of `threads` threads reading `size` bytes once, `in_parts` as ReadBytes has it; the checksum goes to
// `checksum`.
double read_bandwidth(const uint8_t* data, int64_t size, bool in_parts, int threads, uint64_t* checksum);

}  // namespace tilepress
