// `Bf16Unit`: AMX where a file is compiled for it, elsewhere its emulator.
#pragma once

#if defined(__AMX_TILE__)
#include "matrix_unit/amx_bf16.h"
#else
#include "matrix_unit/emulator/bf16.h"
#endif
