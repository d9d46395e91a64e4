// `Int8Unit`: AMX where a file is compiled for it, elsewhere its emulator. `SteppedCodes`: the same for what it
// accepts.
#pragma once

#if defined(__AMX_TILE__)
#include "matrix_unit/amx_int8.h"

namespace tilepress {
namespace {
using SteppedCodes = SteppedUnit<false>;
}  // namespace
}  // namespace tilepress
#else
#include "matrix_unit/emulator/int8.h"
#endif
