// What the processor says of itself; one implementation a processor family.
#pragma once

#include "dispatch/isa.h"

namespace tilepress {

// Whether the processor and the operating system run everything that kernels for `isa` may use.
bool cpu_has(Isa isa);

}  // namespace tilepress
