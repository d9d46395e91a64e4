// A dense tile's fields back to one code a byte, in vectors as wide as the registers and with the width of a field
// known. unpack_block.h's own way has wider vectors, which gcc 12 takes through memory for NEON. In a nameless
// namespace for the reason that pack_block.h gives.
#pragma once

#include "kernels/lanes.h"

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
        std::memcpy(to, &bits, sizeof(bits));
      }
    }
  }
  return in;
}

inline void unpack_lines(int bits, int lines, const uint8_t* in, uint8_t* codes) {
  int shift = 0;
  if (bits & 4) in = unpack_field<4>(0, lines, in, codes), shift = 4;
  if (bits & 2) in = unpack_field<2>(shift, lines, in, codes), shift += 2;
  if (bits & 1) unpack_field<1>(shift, lines, in, codes);
}

// Four bits, looked up.
template <class Table>
void unpack_lines(const Table& table_there, int lines, const uint8_t* in, uint16_t* values) {
  const Table table = table_there;
  for (int line = 0; line < lines; line += 2, values += 2 * kLineCodes) {
    for (int at = 0; at < kVectorBytes; at += kSimdBytes, in += kSimdBytes) {
      const auto pairs = load<Bytes>(in);
      table.look_up(pairs & 15, values + at);
      table.look_up(pairs >> 4, values + kLineCodes + at);
    }
  }
}

}  // namespace
}  // namespace tilepress
