#include "kernels/quantize_int8/quantize_row.h"

namespace tilepress {

bool portable::quantize_int8_row(const Int8Input& in, const Int8Output& out) { return quantize_int8(in, out); }

}  // namespace tilepress
