// The bytes of one block back to codes. Simd brings
//   unpack_stream(bits, in, count, codes): a bit stream to one code per byte; may read kSlackBytes past the stream and
//   write as many past the last code.
//   expand(nonzeros, mask, count, codes, keep): non-zeros to their places, 0 between them, and mask bits to 0/1 bytes
//   unless `keep` is null; returns how many codes it took, and may read one vector past the last.
#pragma once

#include <cstring>

#include "simd/simd.h"
#include "tilepress/pack.h"

namespace tilepress {
namespace {

// One field of `lines` lines of codes, above the `shift` bits that are there. Returns where the next field starts.
template <int width>
const uint8_t* unpack_field(int shift, int lines, const uint8_t* in, uint8_t* codes) {
  constexpr int per_byte = 8 / width;
  constexpr uint8_t mask = (1 << width) - 1;
  for (int line = 0; line < lines; line += per_byte, codes += per_byte * kLineCodes) {
    for (int at = 0; at < kVectorBytes; at += kSimdBytes, in += kSimdBytes) {
      const auto all = load<Bytes>(in);
      for (int part = 0; part < per_byte; ++part) {
        uint8_t* to = codes + part * kLineCodes + at;
        Bytes bits = all >> part * width & mask;
        if (shift) bits = bits << shift | load<Bytes>(to);
        store(bits, to);
      }
    }
  }
  return in;
}

inline void unpack_fields(int bits, int lines, const uint8_t* in, uint8_t* codes) {
  if (bits == 8) std::memcpy(codes, in, static_cast<size_t>(lines) * kLineCodes);
  int shift = 0;
  if (bits & 4) in = unpack_field<4>(0, lines, in, codes), shift = 4;
  if (bits & 2) in = unpack_field<2>(shift, lines, in, codes), shift += 2;
  if (bits & 1) unpack_field<1>(shift, lines, in, codes);
}

// Set bits in `bytes` bytes, a multiple of 64. Without an instruction for it, by adding ever wider neighbours.
int64_t count_bits(const uint8_t* mask, int64_t bytes) {
  int64_t count = 0;
  for (int64_t i = 0; i < bytes; i += kVectorBytes) {
#if defined(__aarch64__)
    uint8x16_t ones = vdupq_n_u8(0);
    for (int quarter = 0; quarter < 4; ++quarter) ones = vaddq_u8(ones, vcntq_u8(vld1q_u8(mask + i + 16 * quarter)));
    count += vaddlvq_u8(ones);
#elif defined(__POPCNT__)
    for (int word = 0; word < kVectorBytes; word += 8) {
      uint64_t places;
      std::memcpy(&places, mask + i + word, sizeof(places));
      count += __builtin_popcountll(places);
    }
#else
    ByteVector ones = load<ByteVector>(mask + i);
    ones -= ones >> 1 & 0x55;
    ones = (ones & 0x33) + (ones >> 2 & 0x33);
    ones = (ones + (ones >> 4)) & 0x0f;
    uint64_t words[8];
    std::memcpy(words, &ones, sizeof(words));
    for (uint64_t word : words) count += static_cast<int64_t>(word * 0x0101010101010101 >> 56);
#endif
  }
  return count;
}

// The inverse of squeezing: opens a gap after each code.
inline uint64_t spread(uint64_t packed, int bits) {
  const uint64_t fours = (packed & ((uint64_t{1} << 4 * bits) - 1)) | packed >> 4 * bits << 32;
  const uint64_t twos_mask = ((uint64_t{1} << 2 * bits) - 1) * 0x0000000100000001;
  const uint64_t twos = (fours & twos_mask) | (fours & ~twos_mask) << (16 - 2 * bits);
  const uint64_t ones_mask = ((uint64_t{1} << bits) - 1) * 0x0001000100010001;
  return (twos & ones_mask) | (twos & ~ones_mask) << (8 - bits);
}

// Writes whole eights: up to seven codes more than `count`.
inline void unpack_stream_by_words(int bits, const uint8_t* in, int64_t count, uint8_t* codes) {
  const uint64_t mask = bits == 8 ? ~uint64_t{0} : (uint64_t{1} << 8 * bits) - 1;
  for (int64_t i = 0; i < count; i += 8, in += bits) {
    uint64_t packed;
    std::memcpy(&packed, in, 8);
    const uint64_t eight = spread(packed & mask, bits);
    std::memcpy(codes + i, &eight, 8);
  }
}

}  // namespace
}  // namespace tilepress
