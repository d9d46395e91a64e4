// CPU features; one implementation per processor family.
#pragma once

#include "dispatch/isa.h"

namespace tilepress {

// Whether the processor and the operating system support everything that kernels for `isa` use.
bool cpu_has(Isa isa);

}  // namespace tilepress
