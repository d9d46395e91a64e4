// `Int8Unit`: AMX where a file is compiled for it, elsewhere its emulator.
#pragma once

#if defined(__AMX_TILE__)
#include "matrix_unit/amx_int8.h"
#else
#include "matrix_unit/emulator/int8.h"
#endif
