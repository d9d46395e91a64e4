// `multiply_groups`, sums of groups on a matrix unit: AMX where a file is compiled for it, elsewhere its emulator.
#pragma once

#if defined(__AMX_TILE__)
#include "matrix_unit/amx_groups.h"
#else
#include "matrix_unit/emulator/groups.h"
#endif
