#include "kernels/weights_u8_f32/weigh_groups.h"

namespace tilepress {

void portable::kv_weigh(const float* scores, int64_t count, float largest, uint8_t* values, int32_t* sums,
                        float* units) {
  weigh_groups(scores, count, largest, values, sums, units);
}

float portable::kv_largest(const float* scores, int64_t count) { return largest_of(scores, count); }

}  // namespace tilepress
