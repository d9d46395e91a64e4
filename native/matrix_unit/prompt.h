// Attention of prompts on the tiles of a matrix unit: AMX where a file is compiled for it, elsewhere its emulator.
#pragma once

#if defined(__AMX_TILE__)
#include "attention/prompt_tiles_amx.h"
#else
#include "matrix_unit/emulator/prompt.h"
#endif
