#include "kernels/quantize_bfp/quantize_row.h"

namespace tilepress {

void portable::quantize_bfp_row(const BfpInput& in, const BfpOutput& out) { quantize_bfp(in, out); }

}  // namespace tilepress
