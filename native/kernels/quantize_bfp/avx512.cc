#include "kernels/quantize_bfp/quantize_row.h"

namespace tilepress {

int avx512::quantize_bfp_row(const BfpInput& in, const BfpOutput& out) { return quantize_bfp(in, out); }

}  // namespace tilepress
