// Three ways, all with the same sums: dense 4- and 8-bit codes straight from their bytes; sparse signed codes expanded
// in registers; everything else tile by tile as linear_block.h does it. `vpdpbusd` wants its first side unsigned, so
// signed operands are raised to be so, and what that adds, as much times the group's sum of x, is taken off at the
// group's end.
#include "kernels/unpack/avx512.h"

#include "kernels/linear_f32_qi8_int/linear_block.h"

namespace tilepress {
namespace {

inline __m512i lanes(const int8_t* x) {
  int32_t four;
  std::memcpy(&four, x, 4);
  return _mm512_set1_epi32(four);
}

struct Avx512Dot : Avx512 {
  static void dot(const int8_t* operands, const int8_t* x, int rows, int32_t* sums) {
    const __m512i raise = _mm512_set1_epi8(static_cast<char>(0x80));
    __m512i sum = _mm512_loadu_si512(sums), raised = _mm512_setzero_si512();
    for (int row = 0; row < rows; ++row, x += 4, operands += kVectorBytes) {
      const __m512i four = lanes(x);
      sum = _mm512_dpbusd_epi32(sum, _mm512_xor_si512(_mm512_loadu_si512(operands), raise), four);
      raised = _mm512_dpbusd_epi32(raised, raise, four);
    }
    _mm512_storeu_si512(sums, _mm512_sub_epi32(sum, raised));
  }
};

// One tile row of unsigned operands times four activations of each row of x.
template <int batch>
[[gnu::always_inline]] inline void add(const LinearBlock& block, int64_t row, int64_t input, __m512i operands,
                                       __m512i* sums) {
  for (int i = 0; i < batch; ++i) {
    sums[i] = _mm512_dpbusd_epi32(sums[i], operands, lanes(block.x + (row + i) * block.x_stride + input));
  }
}

inline __m512 load_sixteen_scales(const LinearBlock& block, int64_t group) {
  if (block.format->scale == ScaleType::bf16) {
    const auto* halves = static_cast<const uint16_t*>(block.scales) + group * kBlockNeurons;
    const __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(halves)));
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
  }
  float scales[kBlockNeurons];
  load_scales(block, group, scales);
  return _mm512_loadu_ps(scales);
}

// What each neuron's operands are raised by in this group: its zero point, or what made signed ones unsigned.
inline __m512i raised_by(const LinearBlock& block, int64_t group, int raise) {
  if (!block.zeros) return _mm512_set1_epi32(raise);
  const uint8_t* zeros = block.zeros + group * kBlockNeurons;
  return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(zeros)));
}

template <int batch>
[[gnu::always_inline]] inline void finish(const LinearBlock& block, int64_t row, int64_t group, int raise,
                                          const __m512i* sums, __m512* totals) {
  const __m512 scales = load_sixteen_scales(block, group);
  const __m512i raised = raised_by(block, group, raise);
  for (int i = 0; i < batch; ++i) {
    const __m512i sum_of_x = _mm512_set1_epi32(block.group_sums[(row + i) * block.groups + group]);
    const __m512i dot = _mm512_sub_epi32(sums[i], _mm512_mullo_epi32(raised, sum_of_x));
    totals[i] = _mm512_add_ps(totals[i], _mm512_mul_ps(_mm512_cvtepi32_ps(dot), scales));
  }
}

// Dense 4-bit codes: two tile rows in a vector. `flip` is 8 for signed codes, which it raises by 8, else 0.
struct Dense4 {
  static constexpr int kRows = 2, kRaise = 8;

  template <int batch>
  [[gnu::always_inline]] static void step(const LinearBlock& block, int64_t row, int64_t input, const uint8_t* packed,
                                          __m512i flip, __m512i* sums) {
    constexpr int kAndXor = 0x6a;  // (a & b) ^ c
    const __m512i pairs = _mm512_loadu_si512(packed), low = _mm512_set1_epi8(15);
    add<batch>(block, row, input, _mm512_ternarylogic_epi32(pairs, low, flip, kAndXor), sums);
    add<batch>(block, row, input + 4, _mm512_ternarylogic_epi32(_mm512_srli_epi16(pairs, 4), low, flip, kAndXor), sums);
  }
};

struct Dense8 {
  static constexpr int kRows = 1, kRaise = 128;

  template <int batch>
  [[gnu::always_inline]] static void step(const LinearBlock& block, int64_t row, int64_t input, const uint8_t* packed,
                                          __m512i flip, __m512i* sums) {
    add<batch>(block, row, input, _mm512_xor_si512(_mm512_loadu_si512(packed), flip), sums);
  }
};

template <int batch>
void store(const __m512* totals, float* out) {
  for (int i = 0; i < batch; ++i) _mm512_storeu_ps(out + i * kBlockNeurons, totals[i]);
}

template <class Codes, int batch>
void dense_rows(const LinearBlock& block, int64_t row, float* out) {
  const int raise = block.zeros ? 0 : Codes::kRaise;
  const __m512i flip = _mm512_set1_epi8(static_cast<char>(raise));
  const uint8_t* packed = block.packed;
  __m512 totals[batch];
  for (auto& total : totals) total = _mm512_setzero_ps();
  int64_t input = 0;
  for (int64_t group = 0; group < block.groups; ++group) {
    const int64_t end = least((group + 1) * block.format->group, block.cols);
    __m512i sums[batch];
    for (auto& sum : sums) sum = _mm512_setzero_si512();
    for (; input < end; input += 4 * Codes::kRows, packed += kVectorBytes) {
      Codes::template step<batch>(block, row, input, packed, flip, sums);
    }
    finish<batch>(block, row, group, raise, sums, totals);
  }
  store<batch>(totals, out);
}

template <int batch>
void sparse_rows(const LinearBlock& block, int64_t row, const uint8_t* kept, float* out) {
  const __m512i raise = _mm512_set1_epi8(static_cast<char>(0x80));
  const uint8_t* mask = block.mask;
  __m512 totals[batch];
  for (auto& total : totals) total = _mm512_setzero_ps();
  int64_t input = 0;
  for (int64_t group = 0; group < block.groups; ++group) {
    const int64_t end = least((group + 1) * block.format->group, block.cols);
    __m512i sums[batch];
    for (auto& sum : sums) sum = _mm512_setzero_si512();
    for (; input < end; input += 4, mask += 8) {
      uint64_t bits;
      std::memcpy(&bits, mask, 8);
      const __m512i operands = _mm512_maskz_expand_epi8(bits, _mm512_loadu_si512(kept));
      add<batch>(block, row, input, _mm512_xor_si512(operands, raise), sums);
      kept += _mm_popcnt_u64(bits);
    }
    finish<batch>(block, row, group, 128, sums, totals);
  }
  store<batch>(totals, out);
}

// Eight rows of activations at a time share what is read of the weights.
template <class Rows>
void in_eights(const LinearBlock& block, float* out, const Rows& rows) {
  int64_t row = 0;
  for (; row + 8 <= block.batch; row += 8) rows.template operator()<8>(row, out + row * kBlockNeurons);
  for (; row + 4 <= block.batch; row += 4) rows.template operator()<4>(row, out + row * kBlockNeurons);
  for (; row < block.batch; ++row) rows.template operator()<1>(row, out + row * kBlockNeurons);
}

template <class Codes>
void dense(const LinearBlock& block, float* out) {
  in_eights(block, out, [&]<int batch>(int64_t row, float* to) { dense_rows<Codes, batch>(block, row, to); });
}

void sparse(const LinearBlock& block, float* out, uint8_t* scratch) {
  const uint8_t* kept = block.packed;
  if (block.format->bits < 8) {
    Avx512::unpack_stream(block.format->bits, block.packed, block.kept, scratch);
    to_operands(*block.format, scratch, block.kept);
    kept = scratch;
  }
  in_eights(block, out, [&]<int batch>(int64_t row, float* to) { sparse_rows<batch>(block, row, kept, to); });
}

}  // namespace

void avx512::linear_int8_block(const LinearBlock& block, float* out, int32_t* sums, uint8_t* scratch) {
  const int bits = block.format->bits;
  if (block.mask && !block.zeros) return sparse(block, out, scratch);
  if (!block.mask && bits == 4) return dense<Dense4>(block, out);
  if (!block.mask && bits == 8) return dense<Dense8>(block, out);
  linear_block_with<Avx512Dot>(block, out, sums, scratch);
}

}  // namespace tilepress
