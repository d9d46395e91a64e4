#include "kernels/silu/silu_lanes.h"

namespace tilepress {

void avx2::silu_floats(float* values, int64_t count) { silu_lanes(values, count); }

}  // namespace tilepress
