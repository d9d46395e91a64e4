#include "kernels/round_f16/round_row.h"

namespace tilepress {

bool amx::round_half_row(const HalfInput& in, const HalfOutput& out) { return round_row(in, out); }

}  // namespace tilepress
