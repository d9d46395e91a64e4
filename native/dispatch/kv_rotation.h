// Keys and queries times an orthonormal Hadamard matrix, which leaves their products as they are. kernels/hadamard.py
// specifies it.
#pragma once

#include <cstdint>
#include <vector>

namespace tilepress {

// values [rows, channels], rotated: the same bits as `transform`.
std::vector<float> rotated(const float* values, int64_t rows, int64_t channels, int threads);

}  // namespace tilepress
