#include "kernels/read/read_bytes.h"

namespace tilepress {

uint64_t avx512::read_bytes(const uint8_t* data, size_t size, bool in_parts) {
  return read_bytes_here(data, size, in_parts);
}

}  // namespace tilepress
