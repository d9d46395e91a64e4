// Which keys and values a sparse store leaves out: the smallest of each token, all heads taken together.
#pragma once

#include <cstdint>
#include <vector>

#include "dispatch/kv_store.h"

namespace tilepress {

// Sets the `drop` smallest of `count` halves to zero; among equals the first. drop < count.
void drop_smallest(uint16_t* halves, int64_t count, int64_t drop);

// Keys (part 0) or values (part 1) of a step, rounded to FP16, with the smallest of each token set to zero.
std::vector<float> without_smallest(const KvSizes& sizes, const KvStep& step, int part, int threads);

}  // namespace tilepress
