#include <immintrin.h>

#include "pack/pack_block.h"

namespace tilepress {
namespace {

struct Avx512 {
  static int64_t compact(const uint8_t* codes, const uint8_t* keep, int count, uint8_t* nonzeros, uint8_t* mask) {
    int64_t consumed = 0;
    for (int i = 0; i < count; i += 64) {
      const __m512i keep_bytes = _mm512_loadu_si512(keep + i);
      const __mmask64 bits = _mm512_test_epi8_mask(keep_bytes, keep_bytes);
      _mm512_storeu_si512(nonzeros + consumed, _mm512_maskz_compress_epi8(bits, _mm512_loadu_si512(codes + i)));
      std::memcpy(mask + i / 8, &bits, 8);
      consumed += _mm_popcnt_u64(bits);
    }
    return consumed;
  }

  static int64_t compact(const uint16_t* codes, const uint8_t* keep, int count, uint16_t* nonzeros, uint8_t* mask) {
    int64_t consumed = 0;
    for (int i = 0; i < count; i += 32) {
      const __m256i keep_bytes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(keep + i));
      const __mmask32 bits = _mm256_test_epi8_mask(keep_bytes, keep_bytes);
      _mm512_storeu_si512(nonzeros + consumed, _mm512_maskz_compress_epi16(bits, _mm512_loadu_si512(codes + i)));
      std::memcpy(mask + i / 8, &bits, 4);
      consumed += _mm_popcnt_u32(bits);
    }
    return consumed;
  }
};

void pack_tiles_codes(const BlockShape& shape, const void* codes, const uint8_t* keep, uint8_t* packed, uint8_t* mask) {
  pack_block_with<Avx512>(shape, codes, keep, packed, mask);
}

TILEPRESS_KERNEL(pack_tiles_codes);

}  // namespace
}  // namespace tilepress
